"""A reverse proxy on loopback that serves a server below a path, and passes that path on or strips it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_MAX_HEAD_BYTES = 64 << 10
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """One request per connection. What is not below the path is not found, and listed in `outside`."""

    def __init__(self, path: str, *, strips: bool) -> None:
        self.path = path
        self._strips = strips
        self.port = 0
        #: The address of the server behind it.
        self.upstream = ""
        self.outside: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}{self.path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *headers = head.removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        if target != self.path and not target.startswith(f"{self.path}/"):
            self.outside.append(target)
            writer.write(_NOT_FOUND)
            return
        target = target.removeprefix(self.path) or "/" if self._strips else target
        kept = [header for header in headers if not header.lower().startswith("connection:")]
        behind = urlsplit(self.upstream)
        answer, request = await asyncio.open_connection(behind.hostname, behind.port)
        try:
            lines = [f"{method} {target} {version}", *kept, "Connection: close", "", ""]
            request.write("\r\n".join(lines).encode("latin-1"))
            sending = asyncio.create_task(_copy(reader, request))
            try:
                await _copy(answer, writer)
            finally:
                sending.cancel()
        finally:
            request.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_MAX_HEAD_BYTES):
            writer.write(chunk)
            await writer.drain()


@asynccontextmanager
async def running_proxy(path: str, *, strips: bool) -> AsyncGenerator[Proxy]:
    """On a free port. Its `upstream` is set once the server behind it listens."""
    proxy = Proxy(path, strips=strips)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
