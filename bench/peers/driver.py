"""Measure in rounds: every section of every runtime, each in a fresh process, in an order that turns.

So a slow moment of the machine hits all of them, and a ratio is taken within one round.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from . import environments

_HERE = Path(__file__).parent
_TIMEOUT_SECONDS = 900
#: How often a section is repeated within a process.
_REPEAT = {"overhead": 3, "counts": 1, "pauses": 3, "durable": 3, "sleeping": 2, "import": 3}
#: What is short and scatters is repeated more often.
_SHORT = frozenset({"overhead", "durable"})
_MORE = {"floor-gov": 6, "interlock": 4, "interlock-runtime": 4}
SECTIONS = tuple(_REPEAT)


class Runtime(NamedTuple):
    """A runtime that is measured."""

    #: Its packages; empty is the environment of Interlock.
    environment: str
    script: str
    #: What a program imports.
    statement: str = ""
    variables: Mapping[str, str] = {}
    sections: Sequence[str] = SECTIONS


OURS = {
    "floor-gov": Runtime("floor", "floor.py", "import asyncio, json, sqlite3, pydantic, orjson"),
    "interlock": Runtime("", "interlock_loop.py", "from interlock import Agent, Runner, tool"),
    "interlock-runtime": Runtime("", "interlock_runtime.py", sections=("overhead", "counts", "durable")),
}
PEERS = {
    "pydantic-ai": Runtime(
        "pydantic_ai",
        "pydantic_ai_peer.py",
        "from pydantic_ai import Agent",
        sections=("overhead", "counts", "pauses", "sleeping", "import"),
    ),
    "pydantic-ai + DBOS": Runtime("pydantic_ai_dbos", "pydantic_ai_peer.py", sections=("durable",)),
    "LangGraph": Runtime(
        "langgraph",
        "langgraph_peer.py",
        "from langchain.agents import create_agent; from langchain_core.tools import tool",
    ),
    "LangGraph (exit)": Runtime(
        "langgraph", "langgraph_peer.py", variables={"LG_DURABILITY": "exit"}, sections=("pauses", "durable")
    ),
    "inspect-ai": Runtime(
        "inspect_ai",
        "inspect_ai_peer.py",
        "from inspect_ai.model import get_model; from inspect_ai.tool import tool",
        sections=("overhead", "counts", "durable", "sleeping", "import"),
    ),
    "OpenAI Agents": Runtime(
        "openai_agents", "openai_agents_peer.py", "from agents import Agent, Runner, function_tool"
    ),
    "Google ADK": Runtime(
        "google_adk",
        "google_adk_peer.py",
        "from google.adk.agents import LlmAgent; from google.adk.runners import Runner",
    ),
}

_IMPORT = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
import json, os, sys
with open("/proc/self/status", encoding="ascii") as status:
    resident = next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
figures = {{"import_cpu_ms": cpu * 1e3, "import_wall_ms": wall * 1e3, "import_mib": resident / 1024}}
print(json.dumps(figures), flush=True)
os._exit(0)
"""


class Step(NamedTuple):
    """One process of one round."""

    round: int
    section: str
    runtime: str


class Measured(NamedTuple):
    """What a run of the driver found."""

    #: By section and runtime, then by figure: a value for each round.
    figures: Mapping[str, Mapping[str, Mapping[str, list[float]]]]
    versions: Mapping[str, Mapping[str, str]]
    #: What could not be installed or failed, one line each.
    problems: Sequence[str]

    def series(self, section: str, runtime: str, name: str) -> list[float]:
        """Return the values of a figure, or nothing where it was not measured."""
        return self.figures.get(section, {}).get(runtime, {}).get(name, [])

    def median(self, section: str, runtime: str, name: str) -> float | None:
        """Return the median over the rounds."""
        return median(values) if (values := self.series(section, runtime, name)) else None

    def ratio(self, section: str, runtime: str, name: str, reference: str) -> float | None:
        """Return the median of the ratios within the rounds."""
        pairs = zip(self.series(section, runtime, name), self.series(section, reference, name), strict=False)
        ratios = [mine / other for mine, other in pairs if other]
        return median(ratios) if ratios else None


def steps(runtimes: Mapping[str, Runtime], sections: Sequence[str], rounds: int) -> list[Step]:
    """Return the processes to run, in order: counts once, since they repeat exactly."""
    found: list[Step] = []
    for section in sections:
        names = [name for name, runtime in runtimes.items() if section in runtime.sections]
        for number in range(1 if section == "counts" else rounds):
            turn = number % max(1, len(names))
            found += [Step(number, section, name) for name in (*names[turn:], *names[:turn])]
    return found


def measure(
    runtimes: Mapping[str, Runtime], sections: Sequence[str], rounds: int, progress: Callable[[str], None]
) -> Measured:
    """Install what is missing, and measure all rounds."""
    pythons: dict[str, Path] = {"": Path(sys.executable)}
    problems: list[str] = []
    for name in {runtime.environment: None for runtime in runtimes.values() if runtime.environment}:
        progress(f"environment {name}")
        python = environments.prepare(name)
        if isinstance(python, str):
            problems.append(python)
        else:
            pythons[name] = python
    there = {name: runtime for name, runtime in runtimes.items() if runtime.environment in pythons}
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    todo, broken = steps(there, sections, rounds), set[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        versions = {
            name: _run(runtime, pythons[runtime.environment], "versions", 1, folder) for name, runtime in there.items()
        }
        for number, step in enumerate(todo):
            if (step.section, step.runtime) in broken:
                continue
            began, runtime = time.monotonic(), there[step.runtime]
            repeat = _REPEAT[step.section] * (_MORE.get(step.runtime, 1) if step.section in _SHORT else 1)
            found = _run(runtime, pythons[runtime.environment], step.section, repeat, folder)
            problem = found.pop("skipped", None) or found.pop("error", None)
            progress(
                f"[{number + 1}/{len(todo)}] {step.section}, round {step.round + 1}, {step.runtime}: "
                f"{time.monotonic() - began:.1f} s"
            )
            if problem is not None:
                broken.add((step.section, step.runtime))
                problems.append(f"{step.runtime}, {step.section}: {problem}")
            into = figures.setdefault(step.section, {}).setdefault(step.runtime, {})
            for name, value in found.items():
                into.setdefault(name, []).append(value)
    return Measured(figures, {name: _plain(found) for name, found in versions.items()}, problems)


def _plain(found: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in found.items()}


def _run(runtime: Runtime, python: Path, section: str, repeat: int, folder: str) -> dict[str, "float"]:
    environment = {**os.environ, **runtime.variables, "BENCH_TMP": folder, "PYTHONPATH": str(_HERE)}
    environment |= {"PYTHONWARNINGS": "ignore", "LANGSMITH_TRACING": "false", "INSPECT_DISPLAY": "none"}
    environment["PYTHONPYCACHEPREFIX"] = str(environments.cache_folder() / "bytecode")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if section == "import":
        return _import(runtime, python, environment, repeat, folder)
    command = [str(python), str(_HERE / "adapters" / runtime.script), section, str(repeat)]
    return _output(command, environment, folder)


def _import(
    runtime: Runtime, python: Path, environment: Mapping[str, str], repeat: int, folder: str
) -> dict[str, float]:
    """Fresh interpreters, everything compiled before."""
    command = [str(python), "-c", _IMPORT.format(runtime.statement or "pass")]
    seen = [_output(command, environment, folder) for _ in range(repeat + 1)][1:]
    if problem := next((one for one in seen if "error" in one), None):
        return problem
    return {name: median(one[name] for one in seen) for name in seen[0]}


def _output(command: Sequence[str], environment: Mapping[str, str], folder: str) -> dict[str, "float"]:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        problem = "took too long"
    except (IndexError, ValueError):
        problem = (done.stderr.strip() or "no output").splitlines()[-1][:200]  # pyright: ignore[reportPossiblyUnboundVariable]
    return {"error": problem}  # pyright: ignore[reportReturnType]
