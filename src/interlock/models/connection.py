"""HTTP of model adapters: with timeouts and size limits, to the configured address only.

The SDKs read lines of any length and wait for ten minutes. So every response is watched: the time until its first
byte, the time between any two bytes (keep-alives count), the length of a line and of the whole. Redirects are not
followed, because they would take the key to another host; compressed answers are refused, because they were not
requested and their size is not what it seems.
"""

import asyncio
from functools import cache
from urllib.parse import urlsplit

import httpx2
import msgspec

from ..domain.errors import ConfigurationError, ModelError

#: Self-hosted servers often want no key, but the SDKs do.
NO_KEY = "none"

MAX_LINE_BYTES = 8 << 20
MAX_ANSWER_BYTES = 256 << 20


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of a request."""

    connect_seconds: float = 10.0
    #: A large local model may have to be loaded first, and some models think before they say anything.
    first_byte_seconds: float = 300.0
    idle_seconds: float = 120.0


DEFAULT_TIMEOUTS = Timeouts()


def create_http_client(timeouts: Timeouts) -> httpx2.AsyncClient:
    """Create the client of one adapter. Reading has no timeout here: `limit_response` has it."""

    async def on_response(response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            raise ModelError(f"The model's server sent a compressed answer ({encoding[:40]!r}) that nobody asked for.")
        limit_response(response, timeouts)

    return httpx2.AsyncClient(
        verify=_ssl_context(),
        timeout=httpx2.Timeout(timeouts.first_byte_seconds, connect=timeouts.connect_seconds, read=None),
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [on_response]},
    )


#: Reading the certificates of the system takes tens of milliseconds, and all adapters trust the same.
_ssl_context = cache(httpx2.create_ssl_context)


def limit_response(response: httpx2.Response, timeouts: Timeouts) -> None:
    """Limit time and size of the rest of a response."""
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream) and not isinstance(stream, _LimitedStream):
        response.stream = _LimitedStream(stream, timeouts)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, timeouts: Timeouts) -> None:
        self._stream = stream
        self._chunks = aiter(stream)
        self._timeout_seconds = timeouts.first_byte_seconds
        self._idle_seconds = timeouts.idle_seconds
        self._line_bytes = 0
        self._answer_bytes = 0

    def __aiter__(self) -> "_LimitedStream":
        return self

    async def __anext__(self) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                chunk = await anext(self._chunks)
        except TimeoutError:
            waited = f"{self._timeout_seconds:g} s"
            raise ModelError(f"The model sent nothing for {waited}. Nothing was executed.", retryable=True) from None
        self._timeout_seconds = self._idle_seconds
        self._count(chunk)
        return chunk

    def _count(self, chunk: bytes) -> None:
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._line_bytes = len(chunk) - end - 1 + (self._line_bytes if end < 0 else 0)
        self._answer_bytes += len(chunk)
        if self._line_bytes > MAX_LINE_BYTES:
            raise ModelError(f"The model's server sent a line of more than {MAX_LINE_BYTES} bytes.")
        if self._answer_bytes > MAX_ANSWER_BYTES:
            raise ModelError(f"The model's server sent more than {MAX_ANSWER_BYTES} bytes for one answer.")

    async def aclose(self) -> None:
        await self._stream.aclose()


def check_base_url(url: str, setting: str) -> None:
    """Check an address. HTTP libraries log addresses, so there must be no secret in it."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
        parts = urlsplit("")
    if not is_usable:
        raise ConfigurationError(f"{setting} must be an http or https address.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{setting} must not hold a user, a password or a query: addresses are logged. Give the key as `api_key`, "
            "or a `client` of your own."
        )


def display_address(url: httpx2.URL) -> str:
    """Return the address without anything that could be a secret."""
    return str(httpx2.URL(scheme=url.scheme, host=url.host, port=url.port))
