"""What an import and the start of the command cost, in a fresh interpreter each time.

CPU time, with everything compiled before: what else the machine does changes little of it, and whether Python may write
compiled files here changes nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from typing import NamedTuple

#: Figures by name, and what is imported for each.
STATEMENTS = {
    "interlock": "import interlock",
    "pydantic": "import pydantic",
    "names": "from interlock import ToolRuntime, tool",
    "base_model": "from pydantic import BaseModel",
    "agent": "from interlock import Agent, Runner, tool",
    "program": """
from interlock import Agent, Runner, ScriptedModel, tool
@tool(risk="read")
def look(path: str) -> str:
    "Look at a file."
    return path
with Runner(Agent(provider=ScriptedModel(["Done."]), tools=[look])) as runner:
    runner.run_sync("Do nothing.")
""",
}
_HELP = "import sys; sys.argv = ['interlock', *{!r}]; from interlock.cli.main import main; main()"
#: Whole processes, by name.
PROCESSES = {
    "typer": "import typer",
    "help": _HELP.format(["--help"]),
    "run_help": _HELP.format(["run", "--help"]),
}

_TIMED = """
import time
began = time.process_time()
{}
cpu = time.process_time() - began
import json
with open("/proc/self/status", encoding="ascii") as status:
    resident = next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
print(json.dumps([cpu * 1e3, resident / 1024]))
"""


class _Cost(NamedTuple):
    cpu_ms: float
    resident_mib: float


def import_costs() -> dict[str, float]:
    """Return milliseconds of CPU by the names of what is measured, and by `agent_mib` the memory of that import."""
    costs = {name: _import_cost(statement) for name, statement in STATEMENTS.items()}
    started = {name: _process_ms(statement) for name, statement in PROCESSES.items()}
    return {name: cost.cpu_ms for name, cost in costs.items()} | {"agent_mib": costs["agent"].resident_mib} | started


def _import_cost(statement: str) -> _Cost:
    command = [sys.executable, "-c", _TIMED.format(statement)]
    done = subprocess.run(
        command, cwd=_folder().name, env=_environment(), capture_output=True, text=True, check=True, timeout=60
    )
    return _Cost(*json.loads(done.stdout))


def _process_ms(statement: str) -> float:
    words, silent = [sys.executable, "-c", statement], (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    process = os.posix_spawn(sys.executable, words, _environment(), file_actions=[silent])
    _, status, usage = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status):
        raise AssertionError(f"{statement} ended with {status}")
    return (usage.ru_utime + usage.ru_stime) * 1e3


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder for what Python compiles, as long as this process lives."""
    return tempfile.TemporaryDirectory(prefix="interlock-bench-")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": _folder().name}
