"""HTTP for measuring: as little as there can be between the socket and the clock.

One `Connection` is kept open and has one request under way at a time. It reads what our server sends: an answer has a
Content-Length, or is a stream of events.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter, time_ns
from typing import Any, NamedTuple

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)\r\n")
#: One event of a stream. Chunks hold whole events, so what frames them is never inside of one.
_EVENT = re.compile(rb"id: \d+\nevent: [^\n]+\ndata: ([^\n]*)\n\n")


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        assert self.status < 300, (self.status, self.body[:500])
        return json.loads(self.body)


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        end = received.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        length = _LENGTH.search(received, 0, end)
        if len(received) - end < (int(length[1]) if length else 0):
            return
        answer = Answer(int(received[9:12]), bytes(received[end:]))
        received.clear()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("The server hung up."))

    async def send(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Stream(asyncio.Protocol):
    """Follows events. `told` is given the data of each, and when it came (nanoseconds since 1970)."""

    def __init__(self, told: Callable[[bytes, int], None]) -> None:
        self._received = bytearray()
        self._told = told

    def data_received(self, data: bytes) -> None:
        now, used = time_ns(), 0
        self._received += data
        for event in _EVENT.finditer(self._received):
            self._told(event[1], now)
            used = event.end()
        del self._received[:used]


class Client(NamedTuple):
    """Who asks, and where."""

    port: int
    key: str = ""

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"] if content else []
        return "\r\n".join([*lines, "", ""]).encode() + content

    async def connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port)
        return connection

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncGenerator[Sequence[Connection]]:
        opened = [await self.connect() for _ in range(count)]
        try:
            yield opened
        finally:
            for connection in opened:
                connection.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """One request on a connection of its own."""
        async with self.connections(1) as (connection,):
            return await connection.send(self.request(method, path, body))

    async def follow(self, path: str, told: Callable[[bytes, int], None]) -> asyncio.Transport:
        """Until whoever asked closes it."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: Stream(told), "127.0.0.1", self.port)
        transport.write(self.request("GET", path))
        return transport


async def load(connections: Sequence[Connection], request: bytes, seconds: float) -> list[float]:
    """Every connection asks again as soon as it has its answer. The seconds that each answer took."""
    until, taken = perf_counter() + seconds, list[float]()

    async def ask(connection: Connection) -> None:
        while (began := perf_counter()) < until:
            answer = await connection.send(request)
            taken.append(perf_counter() - began)
            assert answer.status == 200, answer

    await asyncio.gather(*map(ask, connections))
    return taken
