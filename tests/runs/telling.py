"""Processes of their own in which the story is told by a model over HTTP: `python -m tests.runs.telling` forks one for
each line `FOLDER KIND URL ANSWERS` on its standard input. A person answers so many questions before it ends."""

import asyncio
import os
import sys
from pathlib import Path

from interlock import FileArtifacts, SqliteLog
from interlock.runs.runner import Runner
from tests.crash.points import Points
from tests.crash.scripted import World, tools
from tests.models.wire import provider_at

from .story import ARTIFACTS, LOG, RUN_ID, TASK, boss, go_on


async def tell(folder: Path, kind: str, url: str, most_answers: int) -> str:
    provider = provider_at(kind, url)
    log, artifacts = SqliteLog(folder / LOG), FileArtifacts(folder / ARTIFACTS)
    async with Runner(boss(tools(World(folder, Points())), provider, kind), log=log, artifacts=artifacts) as runner:
        begun = await log.read(RUN_ID, limit=1)
        handle = await (runner.open(RUN_ID) if begun else runner.start(TASK, run_id=RUN_ID))
        await go_on(handle, most_answers=most_answers)
        result = await handle.result()
    await provider.close()
    await log.close()
    return f"{result.status} {result.text}"


def serve() -> None:
    for line in sys.stdin:
        folder, kind, url, answers = line.split()
        if os.fork() == 0:
            print(asyncio.run(tell(Path(folder), kind, url, int(answers))), flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    serve()
