"""MCP over streamable HTTP: redirects stay at the server, answers are bounded, and a token is the user's own."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from types import TracebackType

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from .stdio import MAX_MESSAGE_BYTES

_REFUSALS = (401, 403)
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
#: Reading the certificates of the system takes tens of milliseconds, and all servers are trusted by the same.
_ssl_context = cache(httpx2.create_ssl_context)


class _Bearer(httpx2.Auth):
    """Adds the token of a user, as it is when a request is sent."""

    def __init__(self, get_token: Callable[[], str]) -> None:
        self._get_token = get_token

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if token := self._get_token():
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer, up to a limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"The answer has more than {self._limit:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Refuses compressed answers, whose size is not known, and bounds the others. Events are bounded by the SDK."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        add_secret: Callable[[str], None],
        on_refused: Callable[[str], None] | None,
    ) -> None:
        self._inner = inner
        self._add_secret = add_secret
        #: Called while nothing was accepted yet.
        self._on_refused = on_refused
        self._credentials = ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        credentials = request.headers.get("authorization", "")
        if credentials != self._credentials:
            self._credentials = credentials
            if secret := credentials.partition(" ")[2]:
                self._add_secret(secret)
        response = await self._inner.handle_async_request(request)
        if response.is_success:
            self._on_refused = None
        elif response.status_code in _REFUSALS and self._on_refused is not None:
            self._on_refused(
                f"it {'refuses the' if credentials else 'requires'} credentials (HTTP {response.status_code})"
            )
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError(f"The answer is encoded ({encoding[:50]}), which was not asked for")
        if not response.headers.get("content-type", "").startswith("text/event-stream") and isinstance(
            response.stream, httpx2.AsyncByteStream
        ):
            response.stream = _BoundedStream(response.stream, MAX_MESSAGE_BYTES)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class HttpTransport:
    """A transport of the SDK to one address."""

    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        url: str,
        read_headers: Callable[[], Mapping[str, str]],
        *,
        get_token: Callable[[], str] = lambda: "",
        auth: httpx2.Auth | None = None,
        add_secret: Callable[[str], None] = lambda value: None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            url: The address of the server.
            read_headers: Returns headers for every request, once for each connection.
            get_token: Returns the token of the user, asked for every request. Empty: none.
            auth: Adds credentials to requests, in place of a token.
            add_secret: Called with the credentials that are sent: they may not be shown.
            on_refused: Called with the reason when no connection is made for want of credentials.
        """
        self._url = url
        self._read_headers = read_headers
        self._auth = auth or _Bearer(get_token)
        self._add_secret = add_secret
        self._on_refused = on_refused if auth is None else None  # that one tries others
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> TransportStreams:
        async with AsyncExitStack() as stack:
            client = httpx2.AsyncClient(
                headers=dict(self._read_headers()),
                timeout=_TIMEOUT,
                auth=self._auth,
                transport=_BoundedTransport(
                    httpx2.AsyncHTTPTransport(verify=_ssl_context()), self._add_secret, self._on_refused
                ),
                follow_redirects=False,
            )
            await stack.enter_async_context(client)
            streams = await stack.enter_async_context(streamable_http_client(self._url, http_client=client))
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(exc_type, exc_val, exc_tb)
