"""MCP over streamable HTTP: redirects stay at the server, answers are bounded, and a token is the user's own."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from types import TracebackType

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from .stdio import MAX_MESSAGE_BYTES

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

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
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

    def __init__(
        self, url: str, read_headers: Callable[[], Mapping[str, str]], get_token: Callable[[], str] = lambda: ""
    ) -> None:
        """
        Args:
            url: The address of the server.
            read_headers: Returns headers for every request, once for each connection.
            get_token: Returns the token of the user, asked for every request. Empty: none.
        """
        self._url = url
        self._read_headers = read_headers
        self._get_token = get_token
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> TransportStreams:
        async with AsyncExitStack() as stack:
            client = httpx2.AsyncClient(
                headers=dict(self._read_headers()),
                timeout=_TIMEOUT,
                auth=_Bearer(self._get_token),
                transport=_BoundedTransport(httpx2.AsyncHTTPTransport(verify=_ssl_context())),
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
