"""A server that is killed loses no notice, and repeats one only under its id."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.server.core.receiver import Request, receiving

from .channels import verify_webhook

ROOT = Path(__file__).parents[4]


@asynccontextmanager
async def child(*words: object) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A serving process, gone afterwards whatever happens."""
    command = [sys.executable, "-m", "tests.server.core.notices.notice_child", *map(str, words)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_kill_between_attempt_and_recording_loses_nothing(tmp_path: Path) -> None:
    async def kill(request: Request) -> bytes:
        os.kill(first.pid, signal.SIGKILL)
        return b""

    async with receiving(kill) as receiver:
        async with child(tmp_path, receiver.port, 3) as first:
            assert await first.wait() == -signal.SIGKILL
        async with child(tmp_path, receiver.port, 0):

            def questions() -> set[str]:
                bodies = map(verify_webhook, receiver.requests)
                return {body["data"]["question"]["action_id"] for body in bodies if body["type"] == "question.asked"}

            known = questions()
            await receiver.wait_for(lambda: len(receiver.requests) > 1 and known <= questions())
            repeated = receiver.requests[1]

    assert repeated.headers["webhook-id"] == receiver.requests[0].headers["webhook-id"]
    ids = [request.headers["webhook-id"] for request in receiver.requests[1:]]
    assert len(ids) == len(set(ids))
