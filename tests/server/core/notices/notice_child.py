"""A server that sends notices and is killed: `python -m tests.server.core.notices.notice_child FOLDER PORT NEW`. It
creates so many runs, each with a question, and serves until it is ended."""

import asyncio
import sys
from pathlib import Path

from tests.server.core.serving import ASK_CHANGE, World, create, serving

from .channels import ENVIRON, hook, settings_for


async def main(folder: Path, port: int, new: int) -> None:
    agent = World().one(policy=ASK_CHANGE)
    async with serving(folder, agent, settings=settings_for(hook(port)), environ=ENVIRON) as service:
        for _ in range(new):
            await create(service, "one")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
