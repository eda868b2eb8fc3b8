"""A server on this host that answers as a test says, byte by byte, and tells what it was asked."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

STREAM = "text/event-stream"


@dataclass(frozen=True)
class Reply:
    chunks: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    #: `cut`: the connection is closed in the middle. `hang`: nothing more comes. `mute`: not even a status comes.
    end: Literal["whole", "cut", "hang", "mute"] = "whole"


@dataclass(frozen=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Loopback:
    def __init__(self, replies: tuple[Reply, ...]) -> None:
        self._replies = list(replies)
        self.asked: list[Asked] = []
        #: Set when a client went away from a reply that hangs.
        self.left = asyncio.Event()
        self.url = ""
        self._serving: set[asyncio.Task[Any]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def stop(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(first.split()[1], headers, msgspec.json.decode(body)))
        reply = self._replies.pop(0)
        if reply.end != "mute":
            await _send(reply, writer)
        if reply.end == "cut":
            raise ConnectionError
        if reply.end in {"hang", "mute"}:
            await reader.read()
            self.left.set()
            raise ConnectionError


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> None:
    headers = {"content-type": STREAM, **reply.headers, "transfer-encoding": "chunked"}
    lines = [f"HTTP/1.1 {reply.status} Said", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    for chunk in reply.chunks:
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    if reply.end == "whole":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


@asynccontextmanager
async def serving(*replies: Reply) -> AsyncGenerator[Loopback]:
    loopback = Loopback(replies)
    server = await asyncio.start_server(loopback.accept, "127.0.0.1", 0)
    async with server:
        loopback.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield loopback
        finally:
            await loopback.stop()
