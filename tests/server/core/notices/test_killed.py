"""A server that is killed loses no notice, and repeats one only under its id."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.logs import keep_in_postgres
from tests.postgres.server import PostgresServer
from tests.server.core.receiver import Receiver, Request, receiving

from .channels import verify_webhook

ROOT = Path(__file__).parents[4]
#: Longer than a delivery that is being sent waits for its server.
AHEAD_SECONDS = 120
QUESTIONS = 3


@asynccontextmanager
async def child(
    folder: Path, receiver: Receiver, name: str, *, new: int = 0, ahead: int = 0, step: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A serving process, gone afterwards whatever happens."""
    words = map(str, (folder, receiver.port, name, new, ahead, step))
    command = [sys.executable, "-m", "tests.server.core.notices.notice_child", *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def is_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"


def questions_of(receiver: Receiver) -> set[str]:
    """The questions that it was told of."""
    bodies = map(verify_webhook, receiver.requests)
    return {body["data"]["question"]["action_id"] for body in bodies if body["type"] == "question.asked"}


def ids_of(receiver: Receiver) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.requests]


@pytest.mark.parametrize(
    "step", ["_save:before", "_save:after", "claim:before", "claim:after", "finish:before", "finish:after"]
)
async def test_kill_at_any_step_loses_nothing(tmp_path: Path, step: str) -> None:
    async with receiving() as receiver:
        async with child(tmp_path, receiver, "first", new=QUESTIONS, step=step) as first:
            assert await first.wait() == -signal.SIGKILL
        sent = len(receiver.requests)
        async with child(tmp_path, receiver, "first"):
            await receiver.wait_for(lambda: len(questions_of(receiver)) == QUESTIONS)

    repeated = len(receiver.requests) - len(set(ids_of(receiver)))
    # Only what was taken, and not recorded as such, comes again.
    assert (sent, repeated) == (int(step.startswith("finish")), int(step == "finish:before"))


async def test_kill_during_an_attempt_repeats_one_id(tmp_path: Path) -> None:
    async def kill(request: Request) -> bytes:
        os.kill(first.pid, signal.SIGKILL)
        return b""

    async with receiving(kill) as receiver:
        async with child(tmp_path, receiver, "first", new=QUESTIONS, step="none") as first:
            assert await first.wait() == -signal.SIGKILL
        async with child(tmp_path, receiver, "first"):
            await receiver.wait_for(lambda: len(receiver.requests) == QUESTIONS + 1)

    assert len(questions_of(receiver)) == QUESTIONS
    assert ids_of(receiver)[0] == ids_of(receiver)[1]
    assert len(set(ids_of(receiver))) == QUESTIONS


async def test_killed_leader_is_followed_by_another_server(tmp_path: Path, postgres: PostgresServer) -> None:
    """Both servers run. Its clock is ahead, so the second one does not wait for the first."""
    keep_in_postgres(tmp_path, postgres, postgres.server_url)

    async def kill(request: Request) -> bytes:
        os.kill(first.pid, signal.SIGKILL)
        return b""

    async with receiving() as receiver, child(tmp_path, receiver, "first") as first:
        await is_ready(first)
        receiver.answers = [kill]
        async with child(tmp_path, receiver, "second", new=QUESTIONS, ahead=AHEAD_SECONDS):
            assert await first.wait() == -signal.SIGKILL
            await receiver.wait_for(
                lambda: len(questions_of(receiver)) == QUESTIONS and len(receiver.requests) > QUESTIONS
            )

    assert len(receiver.requests) == QUESTIONS + 1
    assert len(set(ids_of(receiver))) == QUESTIONS
