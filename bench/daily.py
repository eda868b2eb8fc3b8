"""`python -m bench daily`: how often a person is asked in everyday work, and how soon.

Three jobs, each the calls of a model that finds out why the tests fail and fixes it, with the real tools in a project
of its own. A person approves everything: `once` each time, or `always` with the rule that is proposed. In `read_only`
nothing is asked, and the refused calls are counted. Before there were the mode `contained` and rules for a kind of
command, every command that is not proved to only read was a question: the column `once` is the figure of before.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from interlock import Answer, CallbackInteractionProvider, LocalTools, ToolRuntime
from interlock.domain.call import Question
from interlock.policy.files.policy_files import PolicyFiles
from interlock.rendering.prompt import render_prompt
from interlock.sandbox.workspace.toolchain import detect_toolchain

from .live_view import cpu_percent

ROUNDS = 15
#: The window that a prompt is made for.
_WIDTH, _HEIGHT = 80, 24
_MS = 1e3


class Job(NamedTuple):
    """The files of a project, and the calls of a model, turn by turn."""

    files: Mapping[str, str]
    turns: Sequence[Sequence[tuple[str, Mapping[str, Any]]]]


class Way(NamedTuple):
    """A permission mode, and whether the person answers with a rule where one is proposed."""

    mode: str
    always: bool = False


WAYS: Mapping[str, Way] = {
    "once": Way("default"),
    "always": Way("default", always=True),
    "accept_edits": Way("accept_edits"),
    "contained": Way("contained"),
}


def _bash(command: str) -> tuple[str, Mapping[str, Any]]:
    return "bash", {"command": command}


def _edit(path: str, old: str, new: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [("edit_file", {"path": path, "old_string": old, "new_string": new})]


_COMMIT = [_bash("git diff --stat"), _bash("git add -A && git commit -q -m 'Fix the total'")]
JOBS: Mapping[str, Job] = {
    "python": Job(
        {
            "cart.py": "def total(price, amount):\n    return price - amount\n",
            "test_cart.py": (
                "from unittest import TestCase\n\nfrom cart import total\n\n\nclass Test(TestCase):\n"
                "    def test_total(self):\n        self.assertEqual(total(3, 4), 12)\n"
            ),
        },
        [
            [_bash("git status --short"), _bash("python -m unittest")],
            [("read_file", {"path": "cart.py"}), ("grep", {"pattern": "def total"})],
            _edit("cart.py", "price - amount", "price * amount"),
            [_bash("python -m unittest test_cart")],
            [_bash("python -m unittest")],
            [_bash("ruff check .")],
            _COMMIT,
            [_bash("git fetch origin")],
        ],
    ),
    "make": Job(
        {
            "sum.sh": "#!/bin/sh\necho $(($1 - $2))\n",
            "Makefile": 'test:\n\ttest "$$(sh sum.sh 1 2)" = 3\n\n.PHONY: test\n',
        },
        [
            [("list_dir", {}), _bash("cat Makefile")],
            [_bash("make test")],
            [("read_file", {"path": "sum.sh"})],
            _edit("sum.sh", "$1 - $2", "$1 + $2"),
            [_bash("make test")],
            _COMMIT,
        ],
    ),
    "node": Job(
        {
            "package.json": '{"type": "module", "scripts": {"test": "node --test", "lint": "node --check cart.js"}}\n',
            "cart.js": "export const total = (price, amount) => price - amount;\n",
            "cart.test.js": (
                'import assert from "node:assert";\nimport { test } from "node:test";\n'
                'import { total } from "./cart.js";\n\ntest("total", () => assert.equal(total(3, 4), 12));\n'
            ),
        },
        [
            [_bash("cat package.json"), ("list_dir", {})],
            [_bash("npm test")],
            [("read_file", {"path": "cart.js"})],
            _edit("cart.js", "price - amount", "price * amount"),
            [_bash("npm test")],
            [_bash("npm test -- --test-name-pattern total")],
            [_bash("npm run lint")],
            _COMMIT,
        ],
    ),
}


class Outcome(NamedTuple):
    """How many questions a job took, and how many of its calls were refused."""

    questions: int
    refused: int


async def do_job(job: Job, way: Way) -> Outcome:
    """Do a job in a folder of its own, with a policy file that is empty at first."""
    asked = count()

    async def answer(question: Question) -> Answer:
        next(asked)
        if way.always and question.scope == "rule" and question.suggested_rule:
            return Answer(approved=True, scope="rule", rule=question.suggested_rule)
        return Answer(approved=True)

    with TemporaryDirectory(prefix="interlock-bench-") as folder:
        project, policy = Path(folder, "project"), Path(folder, "policy.yaml")
        _write_files(Path(folder), {"policy.yaml": "version: 1\nrules: []\n"})
        _write_files(project, job.files)
        async with _open_runtime(project, answer, policy=PolicyFiles(user=policy), mode=way.mode) as runtime:
            refused = 0
            for number, turn in enumerate(job.turns):
                result = await runtime.execute(list(_make_calls(number, turn)))
                refused += sum(each.code in ("policy_denied", "unknown_tool") for each in result.observations)
    return Outcome(next(asked), refused)


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@asynccontextmanager
async def _open_runtime(
    project: Path, answer: Callable[[Question], Awaitable[Answer | bool]], **options: Any
) -> AsyncGenerator[ToolRuntime]:
    """Open a run with the local tools and the person's own programs, as `interlock run` does."""
    toolchain = detect_toolchain(str(project), os.environ)
    tools = LocalTools(project, extra_read_paths=toolchain.folders, environment=toolchain.environment)
    try:
        async with ToolRuntime(tools=tools, interaction=CallbackInteractionProvider(answer), **options) as runtime:
            yield runtime
    finally:
        await tools.close()


def _make_calls(number: int, turn: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    for place, (name, arguments) in enumerate(turn):
        yield {"type": "tool_use", "id": f"{number}.{place}", "name": name, "input": arguments}


async def first_prompt_ms(rounds: int = ROUNDS) -> list[float]:
    """Return how long it takes from the model's call to the rendered prompt, with the first call of each run."""
    times: list[float] = []
    for _ in range(rounds):
        shown = 0.0

        async def answer(question: Question) -> bool:
            nonlocal shown
            render_prompt(question, _WIDTH, _HEIGHT)
            shown = time.perf_counter()
            return False

        with TemporaryDirectory(prefix="interlock-bench-") as folder:
            _write_files(Path(folder), JOBS["python"].files)
            began = time.perf_counter()
            async with _open_runtime(Path(folder), answer) as runtime:
                await runtime.execute(list(_make_calls(0, [_bash("python -m unittest")])))
        times.append((shown - began) * _MS)
    return times


def toolchain_ms(rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    """Return how long the detection takes in a new folder each, and how long once more in the same."""
    first: list[float] = []
    again: list[float] = []
    for _ in range(rounds):
        with TemporaryDirectory(prefix="interlock-bench-") as folder:
            for times in (first, again):
                began = time.perf_counter()
                detect_toolchain(folder, os.environ)
                times.append((time.perf_counter() - began) * _MS)
    return first, again


def report_questions() -> Iterator[str]:
    """Yield a row for each job."""
    yield f"{'questions per job':20} {'calls':>6} {''.join(f'{name:>13}' for name in WAYS)} {'read_only':>20}"
    for name, job in JOBS.items():
        found = {way: asyncio.run(do_job(job, each)).questions for way, each in WAYS.items()}
        reading = asyncio.run(do_job(job, Way("read_only")))
        calls = sum(map(len, job.turns))
        last = f"{reading.questions} ({reading.refused} refused)"
        yield f"{name:20} {calls:>6} {''.join(f'{number:>13}' for number in found.values())} {last:>20}"


def report_times(rounds: int = ROUNDS) -> Iterator[str]:
    """Yield a line for each time: the median, the fastest, the target and the verdict."""
    first, again = toolchain_ms(rounds)
    figures = (
        ("from the model's call to the first prompt", "ms", asyncio.run(first_prompt_ms(rounds)), 300),
        ("toolchain detection", "ms", first, 50),
        ("toolchain detection again", "ms", again, 1),
        ("live view at 1,000 lines a second", "% CPU", [cpu_percent(5)], 2),
    )
    for label, unit, values, limit in figures:
        reached = median(values)
        verdict = "ok" if reached <= limit else "MISSED"
        yield f"{label:44} {reached:8.2f} {unit:6} fastest {min(values):8.2f}, target <= {limit:<4} {verdict}"


def main(rounds: int = ROUNDS) -> None:
    for line in chain(report_questions(), ("",), report_times(rounds)):
        print(line, flush=True)
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
