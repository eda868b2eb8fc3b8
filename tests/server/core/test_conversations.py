"""Conversations survive their servers: each message is recorded once, and answered once."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import SqliteLog, verify
from interlock.domain.event import Fact, ModelResponded, UserMessageReceived
from interlock.server.core.errors import ConflictError
from interlock.server.core.runs.conversations import is_idle
from interlock.server.core.service import Service
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer
from tests.runs.support import facts

from .killed_conversation import send, talker
from .serving import ADA, create, until
from .test_replicas import Replicas

ROOT = Path(__file__).parents[3]


def said_in(told: list[Fact]) -> list[str]:
    """Return the messages and answers, in order."""
    return [fact.text for fact in told if isinstance(fact, UserMessageReceived | ModelResponded)]


def talked(*messages: str) -> list[str]:
    return [line for text in messages for line in (text, f"You said: {text}")]


def live(folder: Path, count: int, until_line: str) -> tuple[int, list[str]]:
    """Run a server until it prints a line, kill it, and return its exit code and what it printed."""
    words = [sys.executable, "-m", "tests.server.core.killed_conversation", str(folder), str(count)]
    printed: list[str] = []
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                printed.append(line.strip())
                if line.startswith(until_line):
                    break
        finally:
            process.kill()
    return process.returncode, printed


def test_killed_server_loses_and_repeats_no_message(tmp_path: Path) -> None:
    """It is killed while the model answers: the message is recorded, and the answer may not be."""
    count, seqs = 6, dict[str, set[str]]()
    for line in ("sent 0", "sent 3", "sent 4", "done"):
        code, printed = live(tmp_path, count, line)
        assert code == -signal.SIGKILL
        for word, number, seq in (each.split() for each in printed if each.startswith("sent")):
            seqs.setdefault(word + number, set()).add(seq)

    async def check() -> None:
        async with SqliteLog(tmp_path / "runs.db") as log:
            (run_id,) = await log.run_ids()
            assert verify(await log.read(run_id), run_id).ok
            told = said_in(await facts(log, run_id))
        expected = talked("Hello.", *(f"Message {number}." for number in range(count)))
        assert told[: len(expected)] == expected
        assert told[len(expected)] == "The last one."

    asyncio.run(check())
    assert {len(each) for each in seqs.values()} == {1}


@pytest.fixture
def replicas(postgres: PostgresServer, tmp_path: Path) -> Replicas:
    return Replicas(postgres, tmp_path)


async def idle(service: Service, run_id: str) -> bool:
    async def look() -> bool:
        row = await service.index.get_run(run_id)
        return row is not None and await is_idle(service.log, row)

    return await until(service, look)


async def test_two_servers_continue_one_conversation(replicas: Replicas) -> None:
    """One has no worker, so the other answers. A message with the same key at both is one."""
    async with (
        asyncio.timeout(HANG_SECONDS),
        replicas.open("first", talker(9), is_worker=False) as first,
        replicas.open("second", talker(9)) as second,
    ):
        run_id = await create(first, "talker", is_chat=True)
        await idle(first, run_id)
        sent = [await send(service, run_id, "One.", "k1") for service in (first, second)]
        await idle(second, run_id)
        sent.append(await send(second, run_id, "Two.", "k2"))
        await idle(first, run_id)
        sent.append(await send(first, run_id, "Two.", "k2"))
        told = said_in(await facts(first.log, run_id))

    assert told == talked("Do it.", "One.", "Two.")
    assert [is_new for _, is_new in sent] == [True, False, True, False]
    assert sent[0][0] == sent[1][0]


async def test_messages_at_once_are_taken_once_or_refused(replicas: Replicas) -> None:
    async with (
        asyncio.timeout(HANG_SECONDS),
        replicas.open("first", talker(9), is_worker=False) as first,
        replicas.open("second", talker(9)) as second,
    ):
        run_id = await create(first, "talker", is_chat=True)
        await asyncio.gather(idle(first, run_id), idle(second, run_id))
        answers = await asyncio.gather(
            *(
                service.run_service.send_message(ADA, run_id, f"From {number}.", f"k{number}")
                for number, service in enumerate((first, second))
            ),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, ConflictError)]
        await idle(first, run_id)
        told = said_in(await facts(first.log, run_id))

    assert len(refused) <= 1
    assert [error.code for error in refused] in ([], ["not_your_turn"])
    accepted = [f"From {number}." for number, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    assert sorted(told) == sorted(talked("Do it.", *accepted))
