"""Nobody takes what is for all: places for requests, for readers of events, for connections; rows of the journal."""

import asyncio
import resource
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from interlock.server.rest import body, connections
from interlock.server.rest.connections import BoundedHttpProtocol
from interlock.server.rest.errors import ApiError
from interlock.server.rest.limits import ConcurrencyLimiter
from tests.patience import HANG_SECONDS
from tests.server.rest.test_streams import listening
from tests.server.server_process import LOOKUP, NOTE, Running, running_server

_GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_STREAM = b"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
_SLOW = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n%s\r\n{"


@asynccontextmanager
async def open_to(base: str) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def slow(server: Running, stack: AsyncExitStack, path: bytes, header: bytes = b"") -> asyncio.StreamReader:
    """Somebody who sends a body and does not come to its end."""
    reader, writer = await stack.enter_async_context(open_to(server.base))
    writer.write(_SLOW % (path, header))
    return reader


async def status_of(reader: asyncio.StreamReader) -> int:
    return int((await asyncio.wait_for(reader.readline(), HANG_SECONDS)).split(b" ")[1])


async def test_one_key_follows_events_at_most_half_as_often_as_all_may(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_readers=4) as server:
        greedy, other = await server.client("agent"), await server.client("operator")
        async with listening(greedy, "/v1/events/stream"), listening(greedy, "/v1/events/stream"):
            third = await greedy.get("/v1/events/stream")
            assert (third.status_code, third.json()["error"]["code"]) == (429, "too_many_readers")
            assert "key:agent follows events 2 times already" in third.json()["error"]["message"]
            async with listening(other, "/v1/events/stream"):
                assert server.service.hub.reader_count == 3
        async with asyncio.timeout(HANG_SECONDS):
            while server.service.hub.reader_count:
                await other.get("/v1/me")
        async with listening(greedy, "/v1/events/stream"):
            assert server.service.hub.reader_count == 1


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Both ends of 500 connections are in this process, and 1,024 files are the usual limit of a session."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
async def test_five_hundred_readers_lock_nobody_out(tmp_path: Path) -> None:
    """L5: streams and health checks take no places of requests."""
    async with running_server(tmp_path, max_readers=500) as server, AsyncExitStack() as stack:
        asked = await server.asked(await server.begin(NOTE))
        for name in ("agent", "operator"):
            key = (await server.key(name)).encode()
            for _ in range(250):
                reader, writer = await stack.enter_async_context(open_to(server.base))
                writer.write(
                    b"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % key
                )
                assert await status_of(reader) == 200
        operator, other = await server.client("operator"), await server.client("operator_all")
        path, payload = f"/v1/approvals/{asked['action_id']}/approve", {"payload_hash": asked["payload_hash"]}
        assert (await operator.post(path, json=payload)).status_code == 200
        await server.status(asked["run_id"], "COMPLETED")
        one_more = await other.get("/v1/events/stream")
        assert (one_more.status_code, one_more.json()["error"]["code"]) == (503, "too_many_readers")
        assert one_more.headers["retry-after"]
        assert (await other.get("/health/ready")).status_code == 200


async def test_health_answers_when_all_places_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.rest.app.ConcurrencyLimiter", lambda: ConcurrencyLimiter(1))
    async with running_server(tmp_path) as server, AsyncExitStack() as stack:
        client = await server.client()
        await slow(server, stack, b"/v1/session")
        async with asyncio.timeout(HANG_SECONDS):
            while (await client.get("/openapi.json")).status_code != 503:  # until it has arrived
                pass
        assert [(await client.get(f"/health/{word}")).status_code for word in ("live", "ready")] == [200, 200]


@pytest.mark.parametrize("path", [b"/v1/session", b"/hooks/x", b"/nothing"])
async def test_strangers_with_slow_bodies_leave_places_for_everybody_else(
    tmp_path: Path, path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.rest.app.ConcurrencyLimiter", lambda: ConcurrencyLimiter(10))
    async with running_server(tmp_path) as server, AsyncExitStack() as stack:
        slow_ones = [await slow(server, stack, path) for _ in range(12)]
        client = await server.client("operator")
        assert [(await client.get("/v1/me")).status_code for _ in range(20)] == [200] * 20
        if path != b"/nothing":  # where nobody reads a body, nobody waits for one
            answers = [asyncio.create_task(status_of(each)) for each in slow_ones]
            refused = [await first for first in islice(asyncio.as_completed(answers), 10)]
            assert refused == [429] * 10
            waiting = [task for task in answers if not task.done()]
            assert len(waiting) == 2
            for task in waiting:
                task.cancel()


async def test_a_key_with_slow_bodies_leaves_places_for_everybody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.rest.app.ConcurrencyLimiter", lambda: ConcurrencyLimiter(10))
    async with running_server(tmp_path) as server, AsyncExitStack() as stack:
        key = f"Authorization: Bearer {await server.key('agent')}\r\n".encode()
        for _ in range(12):
            await slow(server, stack, b"/v1/runs", key)
        agent, other = await server.client("agent"), await server.client("operator")
        async with asyncio.timeout(HANG_SECONDS):
            while (await agent.get("/v1/me")).status_code != 429:  # until they have arrived
                pass
        assert (await other.get("/v1/me")).status_code == 200
        await stack.aclose()
        async with asyncio.timeout(HANG_SECONDS):
            while (await agent.get("/v1/me")).status_code != 200:
                pass


@pytest.mark.parametrize(
    ("path", "kind"),
    [(b"/v1/session", b"application/json"), (b"/console/login", b"application/x-www-form-urlencoded")],
)
async def test_a_body_that_does_not_say_its_length_is_bounded_whoever_reads_it(
    tmp_path: Path, path: bytes, kind: bytes
) -> None:
    async with running_server(tmp_path, console=True) as server, open_to(server.base) as (reader, writer):
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: %s\r\n\r\n"
        writer.write(head % (path, kind))
        for _ in range(20):
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        assert await status_of(reader) == 413


async def test_a_body_that_trickles_in_has_its_time_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "BODY_SECONDS", 0.2)
    async with running_server(tmp_path) as server, AsyncExitStack() as stack:
        assert await status_of(await slow(server, stack, b"/v1/session")) == 408


async def test_a_body_with_two_lengths_is_not_read(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, open_to(server.base) as (reader, writer):
        key = (await server.key("agent")).encode()
        writer.write(
            b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s"
            % (key, _GET)
        )
        answer = await asyncio.wait_for(reader.read(), HANG_SECONDS)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=80))
def test_nobody_ever_has_more_than_a_share_and_whoever_leaves_is_forgotten(steps: list[tuple[str, bool]]) -> None:
    crowd, there = ConcurrencyLimiter(10), list[tuple[str, Scope]]()
    for name, comes in steps:
        if comes:
            scope: Scope = {"path": "/v1/runs"}
            crowd.begin(scope)
            if sum(each == name for each, _ in there) < 2:
                crowd.acquire(scope, name)
                there.append((name, scope))
            else:
                with pytest.raises(ApiError, match="2 requests of"):
                    crowd.acquire(scope, name)
                crowd.finish(scope)
        elif there:
            crowd.finish(there.pop()[1])
        assert all(sum(each == who for each, _ in there) <= 2 for who in "abcd")
    for _, scope in there:
        crowd.finish(scope)
    assert [crowd.begin({"path": "/v1/runs"}) for _ in range(11)] == [True] * 10 + [False]


async def _answering(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listener() -> AsyncGenerator[str]:
    """Connections as the server takes them, with nothing behind."""
    config = uvicorn.Config(_answering, port=0, log_level="error", lifespan="off", ws="none", http=BoundedHttpProtocol)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())  # pyright: ignore[reportPrivateUsage]  # `serve` takes signals
    try:
        while not server.started:
            await asyncio.wait({serving}, timeout=0.01)
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


_UNFINISHED = [b"", b"GET / HTTP/1.1\r\nHost: x", _GET + b"GET / HT", _GET + _GET + b"G"]
_UNREAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"


@pytest.mark.parametrize("sent", [*_UNFINISHED, _UNREAD])
async def test_a_connection_without_a_request_is_cut_however_its_bytes_trickle_in(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)

    async with listener() as base, open_to(base) as (reader, writer):
        writer.write(sent)
        assert await is_cut(reader, writer)


async def is_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """While byte after byte is sent."""
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        if not await reader.read(1_000):
                            return True
                writer.write(b"a")
    except ConnectionError:
        return True


async def test_when_there_are_too_many_connections_the_idle_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    async with listener() as base, AsyncExitStack() as stack:
        for _ in range(12):
            reader, writer = await stack.enter_async_context(open_to(base))
            writer.write(_GET)
            assert await status_of(reader) == 200


async def test_requests_one_after_the_other_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 2)
    async with listener() as base, open_to(base) as (reader, writer):
        until = asyncio.get_running_loop().time() + 2.5
        while asyncio.get_running_loop().time() < until:
            writer.write(_GET)
            assert await status_of(reader) == 200
            await reader.readuntil(b"ok")


async def test_refusals_are_counted_and_do_not_fill_the_journal(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        agent = await server.client("agent")
        before = (await server.service.audit_log.read_head())[0]
        for number in range(40):
            assert (await agent.get(f"/v1/approvals?agent=a{number}")).status_code == 403
        assert (await agent.get("/v1/keys")).status_code == 403
        rows = await server.service.audit_log.read(before)
    told = [(row.by, row.action, row.outcome, row.detail.get("times", "1")) for row in rows]
    assert told == [
        ("key:agent", "questions.list", "refused", "1"),
        ("key:agent", "questions.list", "refused", "10"),
        ("key:agent", "keys.read", "refused", "1"),
    ]


async def test_fifty_wishes_at_once_with_one_key_are_one_run_and_another_callers_are_another(server: Running) -> None:
    wish, key = {"agent": "shop", "task": LOOKUP}, {"Idempotency-Key": "k"}
    agent, operator = await server.client("agent"), await server.client("operator")
    asked = await asyncio.gather(*(agent.post("/v1/runs", json=wish, headers=key) for _ in range(50)))
    others = await operator.post("/v1/runs", json=wish, headers=key)
    assert sorted(each.status_code for each in asked) == [200] * 49 + [201]
    (mine,) = {each.json()["run_id"] for each in asked}
    assert (others.status_code, others.json()["run_id"] == mine) == (201, False)
