"""HTTP of model adapters: with timeouts and size limits, to the configured address only.

The SDKs read lines of any length and wait for ten minutes. So every response is watched: the time until its first
byte, the time between any two bytes (keep-alives count), the length of a line and of the whole. Redirects are not
followed, because they would take the key to another host; compressed answers are refused, because they were not
requested and their size is not what it seems.

Errors of a provider become `ModelError` without keys, with whether a retry may help. Both SDKs raise errors of the same
shape under their own names: `SdkErrors` has the names, everything else is shared in `SdkProvider`.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from math import isfinite
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from ..domain.errors import CONTEXT_LENGTH_EXCEEDED, ConfigurationError, ModelError
from ..domain.json import escape_surrogates
from ..domain.messages import Usage
from ..rendering.text import end_sentence, shorten_line
from .interface import ModelEvent, ModelRequest, TextDelta
from .usage import Prices

_MAX_SHOWN_CHARS = 500
_HIDDEN = "[key]"
#: Statuses below 500 that say "not now".
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
#: What providers call faults that stay, whatever the status, also in the middle of a stream.
_PERMANENT_ERRORS = frozenset(
    (
        *("authentication_error", "billing_error", "context_length_exceeded", "insufficient_quota", "invalid_api_key"),
        *("invalid_request_error", "model_not_found", "not_found_error", "permission_error", "request_too_large"),
    )
)
#: What providers call a request that is too long for the model, and how those say it that have no name for it.
_TOO_LONG_ERRORS = frozenset({CONTEXT_LENGTH_EXCEEDED, "request_too_large", "exceed_context_size_error"})
_find_too_long = re.compile(
    r"prompt is too long|(?:maximum|available) context (?:length|size)|context (?:window|limit)|context_length_exceeded"
    r"|input token count .{0,40}exceeds|too many (?:input )?tokens",
    re.IGNORECASE,
).search
_TOO_LONG_STATUSES = frozenset({400, 413, 422})
_NEXT_STEPS: Mapping[int, str] = {
    401: "Check the API key.",
    403: "Check what the API key may be used for.",
    404: "Check the model's name and the address.",
    413: "The conversation is too long for this provider.",
    429: "Wait, or ask the provider for a higher limit.",
}


class SdkErrors(NamedTuple):
    """The exceptions of one SDK, the narrow ones first."""

    status: type[Exception]
    timeout: type[Exception]
    connection: type[Exception]
    #: Something that the server said in the middle of a stream.
    said: type[Exception]
    any: type[Exception]


#: What the SDKs and our own reading raise when a stream is not what it should be: not JSON, not UTF-8, a number of
#: more digits than Python reads, another shape, too deep.
_DECODE_ERRORS = (ValueError, msgspec.ValidationError, RecursionError)


@contextmanager
def translate_errors(sdk: SdkErrors, provider: str, key: Callable[[], str]) -> Generator[None]:
    """Convert all exceptions to `ModelError`, without any that hold a request with its headers."""
    try:
        yield
    except ModelError:
        raise
    except sdk.status as error:
        raise _status_error(provider, cast(Any, error), key()) from None
    except (sdk.timeout, httpx2.TimeoutException):
        raise _transient_error(provider, "did not answer in time") from None
    except (sdk.connection, httpx2.TransportError) as error:
        if isinstance(error.__cause__, ModelError):  # one SDK wraps whatever is raised while it reads
            raise error.__cause__ from None
        is_unreachable = isinstance(error.__cause__ or error, httpx2.ConnectError)
        raise _transient_error(provider, "could not be reached" if is_unreachable else "was cut off") from None
    except sdk.said as error:
        raise _stream_error(provider, cast(Any, error), key()) from None
    except _DECODE_ERRORS as error:
        raise _transient_error(provider, f"sent an answer that cannot be read ({type(error).__name__})") from None
    except TimeoutError:
        raise _transient_error(provider, "did not begin to answer in time") from None
    except (sdk.any, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise ModelError(f"{provider} could not be asked ({type(error).__name__}). Nothing was executed.") from None


def _transient_error(provider: str, what: str) -> ModelError:
    return ModelError(f"{provider} {what}. Nothing was executed.", retryable=True)


def _status_error(provider: str, error: Any, key: str) -> ModelError:
    status: int = error.status_code
    kinds = _error_kinds(error.body)
    if status in {HTTPStatus.OK, *_TOO_LONG_STATUSES} and _is_too_long(kinds, error):
        return _too_long_error(provider, error, key)
    retryable = _is_retryable(status, kinds)
    words = [f"{provider} answered {status}: {_error_message(error, key)}", "Nothing was executed."]
    return ModelError(
        " ".join([*words, *filter(None, [_NEXT_STEPS.get(status)])]),
        retryable=retryable,
        retry_after_seconds=_parse_retry_after(error.response.headers) if retryable else None,
    )


def _is_retryable(status: int, kinds: set[str]) -> bool:
    if status == HTTPStatus.OK:  # said in the middle of a stream that began well
        return not kinds & _PERMANENT_ERRORS
    return "insufficient_quota" not in kinds and (
        status in _RETRYABLE_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _is_too_long(kinds: set[str], error: Any) -> bool:
    """Return True if the provider says that the request is too long for the model. A rate limit is no such thing."""
    if kinds & {"rate_limit_error", "rate_limit_exceeded"}:
        return False
    message = _error_object(getattr(error, "body", None)).get("message")
    said = message if isinstance(message, str) else ""
    return bool(kinds & _TOO_LONG_ERRORS) or _find_too_long(said[:_MAX_SHOWN_CHARS]) is not None


def _too_long_error(provider: str, error: Any, key: str) -> ModelError:
    message = f"{provider} refused the request as too long for the model: {_error_message(error, key)}"
    return ModelError(message, code=CONTEXT_LENGTH_EXCEEDED)


def _stream_error(provider: str, error: Any, key: str) -> ModelError:
    if _is_too_long(_error_kinds(getattr(error, "body", None)), error):
        return _too_long_error(provider, error, key)
    message = f"{provider} reported an error: {_error_message(error, key)} Nothing was executed."
    return ModelError(message, retryable=not _error_kinds(getattr(error, "body", None)) & _PERMANENT_ERRORS)


def _error_object(body: Any) -> dict[str, Any]:
    """Return the object inside `{"error": {...}}`, or the body itself if the SDK has unwrapped it."""
    if not isinstance(body, dict):
        return {}
    outer = cast(dict[str, Any], body)
    inner: Any = outer.get("error")
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else outer


def _error_kinds(body: Any) -> set[str]:
    found = _error_object(body)
    return {value for value in (found.get("type"), found.get("code")) if isinstance(value, str)}


def _error_message(error: Any, key: str) -> str:
    found: Any = _error_object(getattr(error, "body", None)).get("message")
    text = found if isinstance(found, str) and found else "no reason was given"
    if key:
        text = text.replace(key, _HIDDEN)
    return end_sentence(shorten_line(escape_surrogates(text), _MAX_SHOWN_CHARS))


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) / per_second
        except ValueError:
            continue
        return max(0.0, seconds) if isfinite(seconds) else None
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


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
            raise ModelError(f"The model's server sent a compressed answer ({encoding[:40]!r}) that was not requested.")
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


class _Response(Protocol):
    """A streamed response as it grows."""

    @property
    def is_complete(self) -> bool: ...

    def add(self, event: object, /) -> str: ...

    def finish(self, prices: Prices | None = None) -> list[ModelEvent]: ...


class SdkProvider(ABC):
    """Stream responses of a model through the SDK of its provider."""

    name: str
    _errors: SdkErrors

    def __init__(
        self, model: str, client: Any, timeouts: Timeouts, prices: Mapping[str, Prices] | None, *, owns_client: bool
    ) -> None:
        self._model = model
        self._client = client
        self._timeouts = timeouts
        self._prices = prices or {}
        self._owns_client = owns_client
        self._display_name = f"The model at {display_address(client.base_url)}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the response. Raise `ModelError` when there is none, or when it broke off."""
        model = request.model or self._model
        if not model:
            kind = type(self).__name__
            raise ModelError(f"No model was named. Nothing was asked; name one in the request or in {kind}.")
        answer = self._make_response(request, model)
        with translate_errors(self._errors, self._display_name, self._get_key):
            async with asyncio.timeout(self._timeouts.first_byte_seconds):
                stream = await self._send(request, model)
            async with stream:
                limit_response(stream.response, self._timeouts)
                async for event in stream:
                    if text := answer.add(event):
                        yield TextDelta(text)
        if not answer.is_complete:
            raise _transient_error(self._display_name, "broke off its answer before the end")
        for event in answer.finish(self._prices.get(model)):
            yield event

    def estimate_cost(self, usage: Usage, model: str) -> float | None:
        """Return the cost of a request with this usage; None where no prices of the model are known."""
        prices = self._prices.get(model or self._model)
        return None if prices is None else prices.compute_cost(usage)

    async def close(self) -> None:
        """Close the connection, unless the client was given."""
        if self._owns_client:
            await self._client.close()

    def _require_one(self, client: object, base_url: str | None, api_key: str | None) -> None:
        if client is not None and (base_url is not None or api_key is not None):
            raise ConfigurationError(f"Give {type(self).__name__} a `client`, or an address and a key, not both.")

    @abstractmethod
    def _get_key(self) -> str: ...

    @abstractmethod
    def _make_response(self, request: ModelRequest, model: str) -> _Response: ...

    @abstractmethod
    async def _send(self, request: ModelRequest, model: str) -> Any: ...
