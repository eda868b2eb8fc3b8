"""A process that answers the question of every run, and says which of its answers stand."""

import asyncio
import sys
from pathlib import Path

from interlock import DecisionConflictError
from tests.logs import open_log

from .scene import Scene


async def decide_all(path: Path, rounds: int, by: str) -> None:
    folder = path.parent / by
    folder.mkdir()
    scene = Scene(folder, open_log(path))
    for number in range(rounds):
        runtime = scene.runtime(run_id=f"run_{number}")
        [action] = await runtime.actions()
        try:
            await runtime.decide(action.action_id, approved=True, by=by)
        except DecisionConflictError as conflict:
            if "approved, by decider-" not in str(conflict):
                raise
        else:
            print(f"run_{number}", flush=True)
    await scene.log.close()


if __name__ == "__main__":
    asyncio.run(decide_all(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
