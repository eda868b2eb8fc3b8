"""Receivers on loopback that remember what they got: over HTTP, TCP and UDP."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.patience import HANG_SECONDS

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Request:
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What it answers next, in turn; then `OK`. An answer that is a function is asked when the request is there."""

    answers: list[bytes | Callable[[Request], Awaitable[bytes]]] = field(default_factory=lambda: [])
    requests: list[Request] = field(default_factory=lambda: [])
    connections: int = 0
    port: int = 0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def lines(self) -> list[bytes]:
        return [line for request in self.requests for line in request.body.splitlines()]

    async def wait_for(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_SECONDS), self._news:
            await self._news.wait_for(done)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await _read(reader)
            reply = self.answers.pop(0) if self.answers else OK
            async with self._news:
                self.requests.append(request)
                self._news.notify_all()
            writer.write(reply if isinstance(reply, bytes) else await reply(request))
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, body)


@asynccontextmanager
async def receiving(
    *answers: bytes | Callable[[Request], Awaitable[bytes]],
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Receiver, None]:
    receiver = Receiver(list(answers))
    server = await asyncio.start_server(receiver.serve, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
