"""What searching through the tools costs beside ripgrep itself: `python -m bench local search` prints ratios.

The tree is made for it: 25,000 files in some 3,000 folders, with ignored ones beside them. Each round runs ripgrep with
the very words that the tool gives it, with nothing around it, and then the tool in a run of its own: the gate, the
sandbox, the order and the page.
"""

import asyncio
import json
import os
import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interlock import ToolRuntime
from interlock.domain.tool import JsonObject
from interlock.local import LocalTools
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.interface import CommandSandbox, CommandSpec, OutputHandler, RunningCommand

FILES = 25_000
_FILES_IN_FOLDER = 10
_ROUNDS = 15
_KINDS = (".py", ".ts", ".md", ".txt", ".json", ".go")
#: By name, a tool and its arguments.
SEARCHES: Mapping[str, tuple[str, JsonObject]] = {
    "grep, a few matches": ("grep", {"pattern": "needle_rare"}),
    "grep, a match in every third file": ("grep", {"pattern": "needle_common"}),
    "grep, which files": ("grep", {"pattern": "needle_common", "output": "files"}),
    "grep, in files by name": ("grep", {"pattern": "needle_rare", "glob": "packages/**/*.{ts,py}"}),
    "grep, more than can be counted": ("grep", {"pattern": "word"}),
    "glob, all files": ("glob", {"pattern": "**"}),
    "glob, by name": ("glob", {"pattern": "**/*.py"}),
    "glob, by path": ("glob", {"pattern": "packages/*/src/**/*.ts"}),
}


class Reading(NamedTuple):
    ours_ms: float
    plain_ms: float


class _Recorder:
    """Implements `CommandSandbox`: the real one, and the first words that it was given since they were last taken."""

    def __init__(self, sandbox: CommandSandbox) -> None:
        self._sandbox = sandbox
        self.confinement = sandbox.confinement
        self.words: tuple[str, ...] = ()

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        self.words = self.words or command.argv
        return await self._sandbox.start(command, on_output)

    def take(self) -> tuple[str, ...]:
        words, self.words = self.words, ()
        return words


def make_tree(root: Path, files: int = FILES) -> None:
    """Text as long as source files are, the same every time."""
    choice = random.Random(1)
    words = [f"word{number}" for number in range(2_000)]
    for number in range(files):
        at = number // _FILES_IN_FOLDER
        folder = root / "packages" / f"package{at % 50}" / "src" / f"part{at // 50 % 10}" / f"piece{at // 500}"
        if number % _FILES_IN_FOLDER == 0:
            folder.mkdir(parents=True)
        lines = [" ".join(choice.choices(words, k=7)) for _ in range(40)]
        if choice.random() < 0.3:
            lines[10] = "import needle_common"
        if choice.random() < 0.002:
            lines[20] = "needle_rare = 1"
        (folder / f"file{number}{_KINDS[number % len(_KINDS)]}").write_text("\n".join(lines) + "\n")
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("build/\n*.log\n")
    for number in range(files // 10):
        ignored = root / "build" / f"{number % 100}" / f"{number}.js"
        ignored.parent.mkdir(parents=True, exist_ok=True)
        ignored.write_text("import needle_common\n")
    # So that what is known about the folders can be kept.
    for folder, _, _ in os.walk(root):
        os.utime(folder, (0, 0))


async def search(
    root: Path, rounds: int = _ROUNDS, searches: Mapping[str, tuple[str, JsonObject]] = SEARCHES
) -> dict[str, list[Reading]]:
    recorder = _Recorder(choose_sandbox())
    tools = LocalTools(root, commands=recorder)
    runtime = ToolRuntime(tools=tools, workspace=root)
    readings: dict[str, list[Reading]] = {name: [] for name in searches}
    for number in range(-1, rounds):
        for name, (tool_name, arguments) in searches.items():
            ours_ms = await _call_ms(runtime, f"{name}-{number}", tool_name, arguments)
            plain_ms = await asyncio.to_thread(_plain_ms, recorder.take(), root)
            # The first round fills caches.
            if number >= 0:
                readings[name].append(Reading(ours_ms, plain_ms))
    await runtime.close()
    await tools.close()
    return readings


async def _call_ms(runtime: ToolRuntime, call_id: str, tool_name: str, arguments: JsonObject) -> float:
    function = {"name": tool_name, "arguments": json.dumps(arguments)}
    began = time.perf_counter()
    result = await runtime.execute([{"id": call_id, "type": "function", "function": function}])
    taken = time.perf_counter() - began
    if not result.observations[0].facts.get("returned"):
        raise AssertionError(result.observations[0].summary)
    return taken * 1e3


def _plain_ms(words: Sequence[str], root: Path) -> float:
    options: dict[str, Any] = {"cwd": root, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "env": {}}
    began = time.perf_counter()
    subprocess.run(words, check=True, **options)
    return (time.perf_counter() - began) * 1e3
