"""A project whose tests fail, and a caller that mends it in six rounds, as a model would.

The caller is scripted, but it knows nothing beforehand: every call is made of what the last message said. A person
answers what they are asked. All else is real: files, sandbox, Python, log.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlock import (
    BatchResult,
    CallbackInteractionProvider,
    Event,
    FileArtifacts,
    LocalTools,
    Observation,
    Question,
    SqliteLog,
    ToolRuntime,
)
from interlock.sandbox.commands.probe import SandboxBackend, choose_sandbox

SOURCE = '''def total(prices):
    """What all of it costs."""
    return sum(prices) + 1
'''
TESTS = """import unittest

from shop.prices import total


class TestTotal(unittest.TestCase):
    "A hundred and fifty baskets."


def check(count):
    return lambda self: self.assertEqual(total([2] * count), 2 * count)


for count in range(150):
    setattr(TestTotal, f"test_{count:03}_prices", check(count))
"""
PROJECT = """[project]
name = "shop"
version = "1.0"

[tool.tasks]
test = "{command}"
"""
#: How the tests of the project are run, by the program that runs them.
COMMANDS = {"unittest": "python3 -m unittest discover -s tests -t .", "pytest": "python3 -m pytest -q --tb=short tests"}


class Round(NamedTuple):
    call: dict[str, Any]
    #: What the model got, and the same as data.
    message: str
    observation: Observation
    #: The facts of this call, in the order in which they were written.
    events: list[Event]

    def event(self, kind: str) -> Any:
        (fact,) = [event.fact for event in self.events if event.type == kind]
        return fact


class Story(NamedTuple):
    root: Path
    log: Path
    artifacts: Path
    runtime: ToolRuntime
    rounds: list[Round]
    questions: list[Question]

    def kept(self, round_number: int, kind: str) -> bytes:
        """The evidence that a round left, as it is on the disk."""
        (found,) = [kept for kept in self.rounds[round_number].observation.artifacts if kept.kind == kind]
        return (self.artifacts / found.path).read_bytes()


def make_project(root: Path, program: str = "unittest") -> Path:
    for folder in (root, root / "shop", root / "tests"):
        folder.mkdir()
    (root / "pyproject.toml").write_text(PROJECT.format(command=COMMANDS[program]))
    (root / "shop" / "__init__.py").write_text("")
    (root / "shop" / "prices.py").write_text(SOURCE)
    (root / "tests" / "__init__.py").write_text("")
    (root / "tests" / "test_prices.py").write_text(TESTS)
    return root


def runtime_for(root: Path, backend: SandboxBackend, **options: Any) -> ToolRuntime:
    """With the Python that runs this, and pytest as it is by itself."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return ToolRuntime(tools=LocalTools(root, commands=choose_sandbox(backend), environment=environment), **options)


def next_calls(said: list[str]) -> Iterator[dict[str, Any]]:
    """What a model asks for, round by round; `said` is what it was told so far."""
    yield call("read_file", path="pyproject.toml")
    command = found('test = "(.+)"', said[-1])
    yield call("bash", command=command, description="Run the tests")
    yield call("read_file", path=found(r"(tests/\w+\.py)", said[-1]))
    yield call("read_file", path=found(r"from (\S+) import", said[-1]).replace(".", "/") + ".py")
    path, line = found(r'"summary":"(\S+):', said[-1]), found(r"\t *(return .+ \+ 1)$", said[-1])
    yield call("edit_file", path=path, old_string=line, new_string=line.removesuffix(" + 1"))
    yield call("bash", command=command)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, f"the model looks for {pattern} in:\n{text}"
    return match[1]


@asynccontextmanager
async def told(folder: Path, backend: SandboxBackend, program: str) -> AsyncGenerator[Story]:
    """The whole story, with its run still open."""
    root = make_project(folder / "project", program)
    asked: list[Question] = []
    log = SqliteLog(folder / "log.db")
    runtime = runtime_for(
        root,
        backend,
        interaction=CallbackInteractionProvider(lambda question: asked.append(question) or True),
        log=log,
        artifacts=FileArtifacts(folder / "artifacts"),
    )
    async with log, runtime:
        rounds = await play(runtime)
        yield Story(root, folder / "log.db", folder / "artifacts", runtime, rounds, asked)


async def play(runtime: ToolRuntime) -> list[Round]:
    said: list[str] = []
    results: list[tuple[dict[str, Any], BatchResult]] = []
    for number, proposed in enumerate(next_calls(said), 1):
        asked = {"id": f"round_{number}", **proposed}
        result = await runtime.execute([asked])
        results.append((asked, result))
        said.append(result.messages[0]["content"])
    events = [step.event for step in await runtime.replay()]
    return [
        Round(
            asked,
            result.messages[0]["content"],
            result.observations[0],
            [event for event in events if event.correlation_id == asked["id"]],
        )
        for asked, result in results
    ]


def run_whole(folder: Path, backend: SandboxBackend, program: str) -> Story:
    """The story from beginning to end, its run closed. Nothing of it is left in the folder for temporary files."""
    temporary = folder / "temporary"
    temporary.mkdir()

    async def run() -> Story:
        async with told(folder, backend, program) as story:
            return story

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        return asyncio.run(run())
