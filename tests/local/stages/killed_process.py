"""A process that runs one command through the local tools, to be killed meanwhile: `python -m ... ROOT STATE HOW`."""

import asyncio
import sys
from pathlib import Path

from interlock import FileArtifacts, LocalTools, SqliteLog, ToolRuntime
from tests.support import call

RUN_ID = "run_killed"
#: Says that it runs, then holds the pipe open as long as it lives.
SCRIPT = "echo once >> ran; exec 9> alive; echo begun >&9; sleep 60"


def runtime_in(root: Path, state: Path, log: SqliteLog) -> ToolRuntime:
    return ToolRuntime(
        tools=LocalTools(root),
        log=log,
        artifacts=FileArtifacts(state / "artifacts"),
        run_id=RUN_ID,
        mode="trusted",
    )


async def live(root: Path, state: Path, background: bool) -> None:
    runtime = runtime_in(root, state, SqliteLog(state / "log.db"))
    await runtime.execute([call("c1", "read_file", path="notes.txt")])
    await runtime.execute([call("c2", "bash", command=SCRIPT, background=background)])
    if background:
        print("started", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "background"))
