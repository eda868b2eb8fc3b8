"""A server that sends notices and is killed: `python -m tests.server.core.notices.notice_child FOLDER PORT NAME NEW
AHEAD STEP`. It creates so many runs, each with a question, prints a line, and serves until it is ended. Its clock is so
many seconds AHEAD. With a STEP its notices begin when all questions are there, and it kills itself at that step; `none`
is no step.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time_ns
from typing import Any

from interlock.server.core.service import Service
from tests.server.core.serving import ASK_CHANGE, World, asked, create, serving

from .channels import ENVIRON, hook, settings_for


def die_at(service: Service, step: str) -> None:
    """Let the process end at a step, such as `claim:after`."""
    name, _, when = step.partition(":")
    if step == "none":
        return
    notices = service.notices
    planner = notices._planner  # pyright: ignore[reportPrivateUsage] - where it ends is inside
    owners: dict[str, Any] = {"_save": planner, "claim": notices.outbox, "finish": notices.outbox}
    owner = owners[name]
    setattr(owner, name, _dying(getattr(owner, name), when))


def _dying(step: Callable[..., Awaitable[Any]], when: str) -> Callable[..., Awaitable[Any]]:
    async def dying(*values: Any, **options: Any) -> Any:
        if when == "after":
            await step(*values, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    return dying


async def main(folder: Path, name: str, *numbers: int, step: str) -> None:
    port, new, ahead = numbers
    agent, settings = World().one(policy=ASK_CHANGE), settings_for(hook(port))
    options: dict[str, Any] = {"state": name, "now": lambda: time_ns() + ahead * 10**9}
    async with serving(folder, agent, settings=settings, environ=ENVIRON, **options) as service:
        if step:
            await service.notices.pause()
        for _ in range(new):
            await asked(service, await create(service, "one"))
        if step:
            die_at(service, step)
            await service.notices.start()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    folder, port, name, new, ahead, step = sys.argv[1:]
    asyncio.run(main(Path(folder), name, int(port), int(new), int(ahead), step=step))
