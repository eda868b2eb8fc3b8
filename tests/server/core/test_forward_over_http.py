"""Forwarding to real receivers, by real processes that are killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit_sinks.forwarder import ForwarderOptions, Forwarders
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.triggers.webhook_signature import compute_signature
from interlock.storage.memory import MemoryLog
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .forwarded import ENVIRON, SECRET, add_run, render, webhook
from .receiver import Receiver, Request, answer, receiving

ROOT = Path(__file__).parents[3]


async def fill(folder: Path, runs: int, events: int) -> list[bytes]:
    log = SqliteLog(folder / "runs.db")
    expected = [line for n in range(runs) for line in await add_run(log, f"run{n}", events)]
    await log.close()
    return expected


@asynccontextmanager
async def child(*words: object) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A forwarding process, gone afterwards whatever happens."""
    command = [sys.executable, "-m", "tests.server.core.forward_child", *map(str, words)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def everything_came(receiver: Receiver, expected: list[bytes]) -> None:
    """All of it in order but for repetitions, each request signed; a delivery that came twice was the same twice."""
    assert list(dict.fromkeys(receiver.lines)) == expected
    bodies: dict[str, bytes] = {}
    for request in receiver.requests:
        time, delivery = int(request.headers["x-interlock-timestamp"]), request.headers["x-interlock-delivery"]
        assert request.headers["x-interlock-signature"] == compute_signature(SECRET, time, delivery, request.body)
        assert bodies.setdefault(delivery, request.body) == request.body


@pytest.mark.requirement("R172")
async def test_a_kill_between_sending_and_writing_it_down_repeats_the_batch_and_loses_nothing(tmp_path: Path) -> None:
    expected = await fill(tmp_path, 3, 7)

    async def kill(request: Request) -> bytes:
        os.kill(first.pid, signal.SIGKILL)
        return b""

    async with receiving(answer(200), kill) as receiver:
        async with child(tmp_path, receiver.port) as first:
            assert await first.wait() == -signal.SIGKILL
        assert receiver.lines == expected[:10]
        async with child(tmp_path, receiver.port) as second:
            await receiver.wait_for(lambda: expected[-1] in receiver.lines)
            second.terminate()
            assert await second.wait() == 0

    everything_came(receiver, expected)
    assert receiver.requests[1].body == receiver.requests[2].body
    assert receiver.requests[1].headers["x-interlock-delivery"] == receiver.requests[2].headers["x-interlock-delivery"]


@pytest.mark.requirement("R172")
async def test_a_kill_around_any_transaction_loses_nothing(tmp_path: Path) -> None:
    expected = await fill(tmp_path, 4, 10)

    async with receiving() as receiver:
        for die_at in (1, 2, 3, 4):
            for words in ((), ("after",)):
                async with child(tmp_path, receiver.port, die_at, *words) as dying:
                    assert await dying.wait() == -signal.SIGKILL
        async with child(tmp_path, receiver.port) as last:
            await receiver.wait_for(lambda: expected[-1] in receiver.lines)
            last.terminate()
            assert await last.wait() == 0

    everything_came(receiver, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite runs as an ordinary user already")
def test_all_of_it_works_for_an_ordinary_user_without_an_environment() -> None:
    files = ("tests/server/core/test_forward_over_http.py", "tests/server/core/test_forward_syslog_file.py")
    pytest_as_ordinary_user(files[0], files[1], "-k", "kill_between or (syslog_file and not structured_data)")


class Patience:
    """A sleep that only writes down how long it would have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)

    @property
    def pace(self) -> ForwarderOptions:
        return ForwarderOptions(batch_events=5, sleep=self, random=lambda: 1.0, idle_seconds=60.0)


@asynccontextmanager
async def forwarding(log: MemoryLog, port: int, patience: Patience) -> AsyncGenerator[Forwarders, None]:
    db = SqliteDatabase(":memory:")
    forwarders = Forwarders(log, db, [webhook(port)], {"interlock": render}, environ=ENVIRON, options=patience.pace)
    forwarders.start()
    try:
        yield forwarders
    finally:
        await forwarders.stop()
        db.close()


async def test_a_busy_a_broken_and_a_slow_receiver_get_everything_in_the_end() -> None:
    async def slow(request: Request) -> bytes:
        await forwarders.list_statuses()  # others go on meanwhile
        return answer(200)

    log, patience = MemoryLog(), Patience()
    expected = await add_run(log, "a", 17)
    troubles = (answer(503, retry_after="17"), b"\x00garbage\r\n\r\n", b"HTTP/1.1 200", answer(429), slow)
    async with receiving(*troubles) as receiver, forwarding(log, receiver.port, patience) as forwarders:
        await receiver.wait_for(lambda: expected[-1] in receiver.lines)

    everything_came(receiver, expected)
    assert patience.slept == [17.0, 2.0, 4.0, 8.0]


async def test_a_receiver_that_was_away_gets_what_it_missed_when_it_is_back() -> None:
    log, patience = MemoryLog(), Patience()
    async with receiving() as receiver:
        port = receiver.port
    tried_often = asyncio.Event()

    class Impatient(Patience):
        async def __call__(self, seconds: float) -> None:
            self.slept.append(seconds)
            if len(self.slept) == 20:
                tried_often.set()
            await asyncio.to_thread(lambda: None)

    patience = Impatient()
    expected = await add_run(log, "a", 12)
    async with forwarding(log, port, patience) as forwarders:
        async with asyncio.timeout(HANG_SECONDS):
            await tried_often.wait()
        status = (await forwarders.list_statuses())[0]
        assert (status.position, status.pending_count) == (0, 12)
        assert "ConnectError" in status.last_error
        async with receiving(port=port) as back:
            await back.wait_for(lambda: expected[-1] in back.lines)
            everything_came(back, expected)
    assert max(patience.slept) <= 60.0


async def test_news_is_sent_at_once() -> None:
    log, patience = MemoryLog(), Patience()
    async with receiving() as receiver, forwarding(log, receiver.port, patience) as forwarders:
        for name in ("a", "b", "c"):
            expected = await add_run(log, name, 2)
            forwarders.wake()
            await receiver.wait_for(lambda wanted=expected: wanted[-1] in receiver.lines)
        found = forwarders.get("siem")
        assert found is not None
        assert forwarders.get("other") is None
        assert (await found.forward_run("a")).sent == 2


def test_a_destination_without_its_secret_or_with_an_unknown_schema_does_not_start() -> None:
    db = SqliteDatabase(":memory:")
    with pytest.raises(ConfigurationError, match="SECRET has none"):
        Forwarders(MemoryLog(), db, [webhook(1)], {"interlock": render}, environ={})
    with pytest.raises(ConfigurationError, match="unknown schema"):
        Forwarders(MemoryLog(), db, [webhook(1)], {}, environ=ENVIRON)
    db.close()
