"""A process that asks, says which question is open, and waits for an answer that never comes. Tests kill it."""

import asyncio
import sys
from pathlib import Path

from interlock import Question
from tests.logs import open_log
from tests.support import call

from .scene import Person, Scene


class Silent(Person):
    async def ask(self, question: Question) -> None:
        print(question.action_id, flush=True)
        await asyncio.Event().wait()


async def wait_for_ever(folder: Path) -> None:
    scene = Scene(folder, open_log(folder / "runs.db"))
    async with scene.runtime(interaction=Silent()) as runtime:
        await runtime.execute([call("c1", "edit", path="notes.txt")])
    (folder / "ran").touch()


if __name__ == "__main__":
    asyncio.run(wait_for_ever(Path(sys.argv[1])))
