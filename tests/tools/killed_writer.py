"""A process that makes one call that writes, and dies around that: `python -m ... ROOT STATE WHEN CALL`.

`WHEN` is `before` or `after` the file takes its name, or `diagnosing` it. The call is JSON: the name of the
tool and its arguments.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from interlock import CallbackInteractionProvider, FileArtifacts, SqliteLog, ToolRuntime
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.read_file import read_file_tool
from interlock.tools.files.write_file import write_file_tool
from tests.support import call

#: The file that was there, which the run has read.
KNOWN = "known.txt"


def runtime_in(workspace: Workspace, state: Path, log: SqliteLog, **options: Any) -> ToolRuntime:
    diagnose = options.pop("diagnose", None)
    tools = [read_file_tool(workspace), write_file_tool(workspace, diagnose), edit_file_tool(workspace, diagnose)]
    artifacts = FileArtifacts(state / "artifacts")
    return ToolRuntime(
        tools=tools, workspace=workspace.root, log=log, artifacts=artifacts, run_id="run_killed", **options
    )


async def live(root: str, state: Path, when: str, tool_name: str, arguments: dict[str, Any]) -> None:
    yes = CallbackInteractionProvider(lambda question: True)
    with Workspace(root) as workspace:
        runtime = runtime_in(workspace, state, SqliteLog(state / "log.db"), interaction=yes, diagnose=_diagnose)
        await runtime.execute([call("c1", "read_file", path=KNOWN)])
        if when != "diagnosing":
            _die(when, arguments["path"])
        await runtime.execute([call("c2", tool_name, **arguments)])


async def _diagnose(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die(when: str, name: str) -> None:
    replace = os.replace

    def deadly(source: str, target: str, **folders: int) -> None:
        if target == name and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target, **folders)
        if target == name:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = deadly


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), sys.argv[3], *json.loads(sys.argv[4])))
