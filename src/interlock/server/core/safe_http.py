"""HTTP client for configured URLs: it connects where the URL says, or nowhere.

A URL is https unless plain http was allowed for it, has no user in it, and its name is resolved once: all addresses are
checked (`addresses.py`), and the connection is made to a checked one, with the name in SNI, certificate check and
`Host`. No redirect is followed, no proxy or password is taken from the environment, connections are not kept (two names
on one address must not share one), and time and size of the answer are bounded.

`SafeTransport` is the same for libraries that bring their own client of `httpx2`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache

import httpx2
import msgspec

from ...domain.errors import ConfigurationError
from .addresses import (
    AddressRefusal,
    NetworkAccess,
    Resolver,
    find_host_problem,
    resolve_allowed_addresses,
    resolve_with_system,
)

MAX_REPLY_BYTES = 256 * 1024
MAX_URL_CHARS = 8192
_MAX_PROBLEM_CHARS = 200


class HttpTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of a request."""

    connect_seconds: float = 10.0
    #: Between two pieces of what is sent or received.
    idle_seconds: float = 30.0
    #: From the first to the last byte, so that one byte at a time does not take for ever.
    total_seconds: float = 60.0


class HttpReply(msgspec.Struct, frozen=True):
    """The response to a request."""

    status: int
    #: Names in lower case.
    headers: dict[str, str]
    body: bytes


class HttpFailure(msgspec.Struct, frozen=True):
    """No response. Whether the request arrived is unknown, unless it was refused here."""

    problem: str
    #: It was not sent, and sending it again changes nothing.
    is_refused: bool = False


class RequestRefusedError(httpx2.RequestError):
    """Nothing was sent: the URL or the address is not one that may be called."""


def create_ssl_context(ca_file: str = "") -> ssl.SSLContext:
    """Return an SSL context that trusts the system's certificates, or only those in the file. Always verifies."""
    if not ca_file:
        return _system_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"The certificates in {ca_file} cannot be read: {error}.") from error


@cache
def _system_ssl_context() -> ssl.SSLContext:
    """Return the context that all connections share: reading the certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context(trust_env=False)


def find_url_problem(url: str, access: NetworkAccess) -> str:
    """Return what is wrong with a URL as written; empty when nothing is. Its name is not resolved."""
    try:
        return _find_problem(httpx2.URL(url), access) if len(url) <= MAX_URL_CHARS else "it is too long"
    except (httpx2.InvalidURL, ValueError):
        return "it is not a URL"


def _find_problem(url: httpx2.URL, access: NetworkAccess) -> str:
    if url.scheme != "https" and not (url.scheme == "http" and access.allow_plain):
        return "it has to begin with https://" + (
            " (http only with `allow_plain = true`)" if url.scheme == "http" else ""
        )
    if url.userinfo:
        return "it has a user or a password in it"
    if url.port is not None and not 0 < url.port < 1 << 16:
        return "its port is none"
    return find_host_problem(url.raw_host.decode("ascii"))


class SafeTransport(httpx2.AsyncBaseTransport):
    """A transport that applies these checks to every request. Raises `RequestRefusedError` for refused URLs."""

    def __init__(
        self,
        access: NetworkAccess | None = None,
        *,
        verify: ssl.SSLContext | None = None,
        resolve: Resolver = resolve_with_system,
    ) -> None:
        self._access = access or NetworkAccess()
        self._resolve = resolve
        self._inner = httpx2.AsyncHTTPTransport(
            verify=verify or create_ssl_context(), trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to an allowed address of its host. Nothing is sent to others."""
        if problem := _find_problem(request.url, self._access):
            raise RequestRefusedError(f"The URL cannot be called: {problem}. Nothing was sent.", request=request)
        addresses = await self._resolve_addresses(request)
        for address in addresses[:-1]:
            try:
                return await self._inner.handle_async_request(_pin_to_address(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nothing was sent; the name has another address
        return await self._inner.handle_async_request(_pin_to_address(request, addresses[-1]))

    async def _resolve_addresses(self, request: httpx2.Request) -> tuple[str, ...]:
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await resolve_allowed_addresses(host, port, self._access, self._resolve)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} cannot be resolved: {error}", request=request) from error
        if isinstance(addresses, AddressRefusal):
            raise RequestRefusedError(addresses.problem, request=request)
        return addresses

    async def aclose(self) -> None:
        """Close the transport."""
        await self._inner.aclose()


def _pin_to_address(request: httpx2.Request, address: str) -> httpx2.Request:
    """Direct a request to an address. `Host` is among the headers already."""
    name = request.url.raw_host.decode("ascii")
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": name},
    )


class SafeClient:
    """Sends requests and returns outcomes. Never raises for failures of others."""

    def __init__(
        self,
        access: NetworkAccess | None = None,
        *,
        ca_file: str = "",
        resolve: Resolver = resolve_with_system,
        timeouts: HttpTimeouts | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        self._timeouts = timeouts or HttpTimeouts()
        self._max_reply_bytes = max_reply_bytes
        self._client = httpx2.AsyncClient(
            transport=SafeTransport(access, verify=create_ssl_context(ca_file), resolve=resolve),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx2.Timeout(self._timeouts.idle_seconds, connect=self._timeouts.connect_seconds),
            headers={"accept-encoding": "identity", "user-agent": "interlock"},
        )

    async def post(self, url: str, content: bytes, headers: Mapping[str, str] | None = None) -> HttpReply | HttpFailure:
        """Send a POST request."""
        return await self._request("POST", url, content, headers)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> HttpReply | HttpFailure:
        """Send a GET request."""
        return await self._request("GET", url, b"", headers)

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def _request(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str] | None
    ) -> HttpReply | HttpFailure:
        try:
            async with asyncio.timeout(self._timeouts.total_seconds):
                return await self._exchange(method, url, content, headers)
        except TimeoutError:
            return HttpFailure(f"There was no answer within {self._timeouts.total_seconds:g} s.")
        except RequestRefusedError as error:
            return HttpFailure(str(error), is_refused=True)
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            return HttpFailure("The URL or a header is not one that can be sent. Nothing was sent.", is_refused=True)
        except httpx2.HTTPError as error:
            return HttpFailure(_describe_error(error))

    async def _exchange(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str] | None
    ) -> HttpReply | HttpFailure:
        async with self._client.stream(method, url, content=content, headers=dict(headers or {})) as response:
            body = bytearray()
            # Raw, so that nothing that was sent compressed grows in here.
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self._max_reply_bytes:
                    return HttpFailure(
                        f"The answer ({response.status_code}) is longer than {self._max_reply_bytes} bytes."
                    )
            return HttpReply(
                response.status_code, {name.lower(): value for name, value in response.headers.items()}, bytes(body)
            )


def _describe_error(error: httpx2.HTTPError) -> str:
    """Describe an error without the URL: its query may be a secret."""
    message = " ".join(str(error).split())[:_MAX_PROBLEM_CHARS]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
