"""`make demo`: two model turns on their way through Interlock, offline, with real tools in a temporary folder.

Two things are scripted, for a demo has neither: what the model asks for, and what the person answers.
"""

import asyncio
import json
import os
import shutil
import sys
import textwrap
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple

from interlock import (
    Answer,
    BatchResult,
    CallbackInteractionProvider,
    Event,
    FileArtifacts,
    Normalized,
    Observation,
    Phase,
    Question,
    Replay,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolContext,
    ToolDefinition,
    ToolRuntime,
    render_for_user,
    tool,
    verify,
)

SHOP = "def discount(items):\n    return 0.1 if items > 100 else 0.0\n"
TEST_SHOP = """
import unittest
from shop import discount

class TestDiscount(unittest.TestCase):
    "Ten percent from 100 items on."

def check(items):
    return lambda self: self.assertEqual(discount(items), 0.1 if items >= 100 else 0.0)

for items in range(1, 301):
    setattr(TestDiscount, f"test_{items:03}_items", check(items))
"""
TURN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("c1", "search", {"words": "items"}),
    ("c2", "delete_file", {"name": "test_shop.py"}),
    ("c3", "search", {"words": 100, "limt": 5}),
    ("c4", "wait_for_file", {"name": "build.done"}),
    ("c1", "search", {"words": "items"}),
    ("c5", "write_note", {"name": "note.md", "text": "Should > be >= ?"}),
    ("c6", "run_tests", {}),
)
POLICY = RulePolicy(
    [
        Rule(id="keep-files", verdict="deny", tools="delete_*", reason="Files are kept.", advice="Write a note."),
        Rule(id="run-tests", verdict="allow", tools="run_tests"),
    ]
)


class Told(NamedTuple):
    run_id: str
    #: Every message that the model got.
    contents: list[str]


def main() -> None:
    with TemporaryDirectory(prefix="interlock-demo-") as folder:
        project, log = Path(folder, "project"), Path(folder, "log.db")
        project.mkdir()
        (project / "shop.py").write_text(SHOP)
        (project / "test_shop.py").write_text(TEST_SHOP)
        told = asyncio.run(take_two_turns(project, log))
        asyncio.run(look_back(told, log, project / "note.md"))
    heading("Next")
    show("make test                           the checks and tests behind this")
    show(".venv/bin/python examples/loop.py   a loop of your own around a runtime")
    show("README.md, docs/guide.md            how to use it, step by step")


async def take_two_turns(project: Path, log: Path) -> Told:
    runtime = ToolRuntime(
        tools=tools_of(project),
        policy=POLICY,
        interaction=CallbackInteractionProvider(scripted_person),
        log=SqliteLog(log),
        artifacts=FileArtifacts(project.parent / "artifacts"),
    )
    async with runtime:
        heading("1. A model asks for seven calls in one turn")
        for call_id, name, arguments in TURN:
            show(f"{call_id}  {name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
        first = await runtime.execute([model_call(*call) for call in TURN])
        events = [step.event for step in await runtime.replay()]

        heading("2. What became of them (to the right: time; . waits, # runs, x refused)")
        show_timeline(first, events)
        heading("3. One refusal, three readers")
        show_readers(first, events, "c2")
        heading("4. A long output, cut around its failure; all of it is kept")
        cut = next(observation for observation in first.observations if observation.truncated)
        hint = show_cut(cut)

        heading("5. The next turn follows the hint to the rest")
        second = await runtime.execute([model_call("c7", "read_artifact", hint)])
        show_output(second.observations[0])
        await runtime.complete("The demo is over.")
    return Told(runtime.run_id, [message["content"] for message in first.messages + second.messages])


async def look_back(told: Told, log: Path, note: Path) -> None:
    heading("6. The log: verified, tampered with, replayed")
    entries = await entries_of(log, told.run_id)
    audit = verify(entries, told.run_id)
    show(f"as it is     {style('ok', 'green') if audit.ok else audit.flaw}: {audit.count} events in one unbroken chain")

    audit = verify(await entries_of(tampered_copy(log), told.run_id), told.run_id)
    show(f"one byte off {style(audit.flaw.message if audit.flaw else 'not noticed', 'red')}")

    before = note.stat().st_mtime_ns, note.read_text()
    replay = Replay(entries)
    same = [message.text for message in replay.messages()] == told.contents
    untouched = (note.stat().st_mtime_ns, note.read_text()) == before
    show(f"replayed     {len(replay)} steps, messages {'as the model read them' if same else 'that differ'}")
    show(f"             {note.name} is {'untouched: nothing was executed' if untouched else 'changed'}")


async def entries_of(log: Path, run_id: str) -> list[Any]:
    opened = SqliteLog(log)
    try:
        return await opened.read(run_id)
    finally:
        await opened.close()


def tampered_copy(log: Path) -> Path:
    """Somebody wants the record to name another file: `best_shop.py`."""
    content = bytearray(log.read_bytes())
    content[content.index(b"test_shop.py")] = ord("b")
    copy = log.with_name("tampered.db")
    copy.write_bytes(content)
    return copy


def tools_of(project: Path) -> list[ToolDefinition]:
    @tool(risk="read")
    def search(words: str, limit: int = 3) -> list[str]:
        """Find lines of the project that hold the words."""
        lines = [(file.name, line) for file in sorted(project.glob("*.py")) for line in file.read_text().splitlines()]
        return [f"{name}: {line.strip()}" for name, line in lines if words in line][:limit]

    @tool(risk="write")
    def delete_file(name: str) -> str:
        """Delete a file."""
        (project / name).unlink()
        return f"deleted {name}"

    @tool(risk="read", timeout_seconds=0.3)
    def wait_for_file(name: str, context: ToolContext) -> str:
        """Wait until a file is there."""
        while not (project / name).exists() and not context.cancelled:
            sleep(0.01)
        return f"{name} is there"

    @tool(risk="write", write_keys=lambda arguments: arguments["name"])
    def write_note(name: str, text: str, context: ToolContext) -> str:
        """Write a note."""
        (project / name).write_text(text)
        context.side_effect("created", name)
        return f"wrote {len(text)} characters to {name}"

    @tool(risk="execute", max_output_chars=1_000, normalize=test_report)
    async def run_tests() -> tuple[int | None, str]:
        """Run the tests of the project."""
        command = (sys.executable, "-m", "unittest", "-v")
        process = await asyncio.create_subprocess_exec(*command, cwd=project, stdout=PIPE, stderr=STDOUT)
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    return [search, delete_file, wait_for_file, write_note, run_tests]


def test_report(ended: tuple[int | None, str]) -> Normalized:
    exit_code, output = ended
    code, summary = ("ok" if exit_code == 0 else "tests_failed"), output.rstrip().rpartition("\n")[2]
    return Normalized(ok=exit_code == 0, code=code, summary=summary, text=output, exit_code=exit_code, side_effects=())


async def scripted_person(question: Question) -> Answer:
    print()
    show(f"{style('a person is asked', 'yellow')}: {question.prompt}")
    show(f"{style('answer', 'yellow')} (scripted; this demo asks nobody): yes")
    return Answer(approved=True, by="demo script")


def model_call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def show_timeline(result: BatchResult, events: list[Event]) -> None:
    shown: set[str] = set()
    for observation in result.observations:
        call_id, failure = observation.call_id, observation.failure
        name = style(f"{call_id}  {observation.tool:14}", "bold")
        if call_id in shown:
            show(f"{name}{style('the same call again: has the answer of the first', 'dim')}\n")
            continue
        shown.add(call_id)
        code = style(f"{observation.code:15}", "green" if observation.ok else "red")
        took = "" if observation.duration_ms is None else f"{observation.duration_ms:.1f} ms"
        show(f"{name}{code}{took:>9}  {bar(call_id, events)}")
        way = list(Phase)[: list(Phase).index(failure.phase if failure else Phase.OBSERVE) + 1]
        show("    " + style(" ".join(way), "dim") + (style(" <- stopped", "red") if failure else ""))
        show_text(render_for_user(observation), "    ")
        print()


def bar(call_id: str, events: Iterable[Event]) -> str:
    """When the call waited and when it ran, on the time of the whole turn."""
    width, times = line_width() - 49, [event.at for event in events]
    scale = (max(times) - times[0]) / width
    at = {event.type: int((event.at - times[0]) / scale) for event in events if event.correlation_id == call_id}
    ended, started = at["tool.observation"], at.get("tool.invocation.started")
    if started is None:
        return f"|{'x':{width + 1}}|"
    waited = "." * (started - at["tool.intent"])
    return f"|{waited.rjust(started) + '#' * (ended - started + 1):{width + 1}}|"


def show_readers(result: BatchResult, events: list[Event], call_id: str) -> None:
    message = next(message for message in result.messages if message["tool_call_id"] == call_id)
    observation = next(observation for observation in result.observations if observation.call_id == call_id)
    show_text(message["content"], "model   ")
    show_text(render_for_user(observation), "person  ")
    show_text(", ".join(f"{e.seq} {e.type}" for e in events if e.correlation_id == call_id), "log     ")


def show_cut(cut: Observation) -> dict[str, Any]:
    """Show the excerpt and return where the runtime says that the rest is."""
    show_output(cut)
    if cut.size is None or cut.next_tool is None:
        raise SystemExit("The output was not cut.")
    size, hint = cut.size, cut.next_tool.input_hint
    show(f"{size.produced:,} bytes: {size.shown:,} shown, {size.omitted:,} omitted, {size.kept:,} kept")
    show_text(f"read_artifact {hint}", "hint  ")
    return {**hint, "limit": 600}


def show_output(observation: Observation) -> None:
    for line in observation.content.text.splitlines() if observation.content else ():
        show(style(textwrap.shorten(line, line_width() - 2) or "", "dim"))
    print()


def show_text(text: str, label: str) -> None:
    for line in textwrap.wrap(text, line_width() - 2, initial_indent=label, subsequent_indent=" " * len(label)):
        show(line)


def heading(text: str) -> None:
    print(f"\n{style(text, 'bold')}\n")


def show(line: str) -> None:
    print(f"  {line}")


def line_width() -> int:
    return max(72, min(100, shutil.get_terminal_size().columns))


STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


def style(text: str, name: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{STYLES[name]}m{text}\033[0m"


if __name__ == "__main__":
    main()
