"""What is written together is sent together, and a client that does not read is disconnected."""

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from interlock.server.rest import connections
from interlock.server.rest.connections import BoundedHttpProtocol, JoinedWrites
from tests.patience import HANG_SECONDS

_GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class RecordedTransport(asyncio.Transport):
    """A transport that never sends."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def answered(transport: RecordedTransport) -> BoundedHttpProtocol:
    """Return a connection on which one request was answered."""
    config = uvicorn.Config(_answer, log_level="error", lifespan="off", ws="none")
    state = ServerState()
    protocol = BoundedHttpProtocol(config, state, {})
    protocol.connection_made(transport)
    protocol.data_received(_GET)
    await asyncio.gather(*state.tasks)
    return protocol


async def let_others_work() -> None:
    begun = asyncio.Event()
    asyncio.get_running_loop().call_soon(begun.set)
    await begun.wait()


async def test_head_and_body_are_one_write() -> None:
    transport = RecordedTransport()
    protocol = await answered(transport)
    protocol.connection_lost(None)

    (written,) = transport.writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"\r\n\r\nok")


async def test_answered_request_leaves_only_the_keep_alive_timer() -> None:
    loop = asyncio.get_running_loop()
    before = len(list_timers(loop))
    protocol = await answered(RecordedTransport())

    assert len(list_timers(loop)) == before + 1
    protocol.connection_lost(None)
    assert len(list_timers(loop)) == before


def list_timers(loop: Any) -> list[asyncio.TimerHandle]:
    return [timer for timer in loop._scheduled if not timer.cancelled()]


async def test_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.01)
    transport = RecordedTransport()
    protocol = await answered(transport)

    protocol.pause_writing()
    protocol.resume_writing()
    protocol.pause_writing()

    await asyncio.wait_for(transport.aborted.wait(), HANG_SECONDS)
    protocol.connection_lost(None)


async def test_closed_connection_with_an_unread_rest_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.01)
    transport = RecordedTransport()
    protocol = await answered(transport)

    protocol.timeout_keep_alive_handler()

    assert transport.is_closed
    await asyncio.wait_for(transport.aborted.wait(), HANG_SECONDS)
    protocol.connection_lost(None)


async def test_short_write_is_held_until_other_work_begins() -> None:
    transport = RecordedTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())

    joined.write(b"alone")
    held = list(transport.writes)
    await let_others_work()

    assert (held, transport.writes) == ([], [b"alone"])


async def test_long_write_is_not_held() -> None:
    transport = RecordedTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())

    joined.write(b"x" * 100_000)
    joined.write(b"")

    assert b"".join(transport.writes) == b"x" * 100_000


async def test_closing_sends_what_is_held_and_aborting_does_not() -> None:
    closed, aborted = RecordedTransport(), RecordedTransport()
    for transport in (closed, aborted):
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"last")
        joined.close() if transport is closed else joined.abort()
    await let_others_work()

    assert (closed.writes, aborted.writes) == ([b"last"], [])
