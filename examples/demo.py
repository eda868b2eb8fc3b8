"""`make demo`: a few model turns on their way through Interlock, offline, with real tools in a temporary folder.

Two things are scripted, for a demo has neither: what the model asks for, and what people answer.
"""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from demo_local import show_local_tools
from demo_policy import show_policy
from demo_screen import heading, line_width, show, show_text, style
from demo_tools import make_project, tools_of

from interlock import (
    CODES,
    Answer,
    BatchResult,
    CallbackInteractionProvider,
    Event,
    FileArtifacts,
    Observation,
    Phase,
    Question,
    Replay,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolRuntime,
    render_for_user,
    verify,
)

POLICY = RulePolicy(
    [
        Rule(id="keep-files", verdict="deny", tools="delete_*", reason="Files are kept.", advice="Write a note."),
        Rule(id="run-tests", verdict="allow", tools="run_tests"),
    ]
)
TURN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("c1", "search", {"words": "items"}),
    ("c2", "delete_file", {"name": "test_shop.py"}),
    ("c3", "search", {"words": 100, "limt": 5}),
    ("c4", "wait_for_file", {"name": "build.done"}),
    ("c1", "search", {"words": "items"}),
    ("c5", "write_note", {"name": "note.md", "text": "Should > be >= ?"}),
    ("c6", "run_tests", {}),
)


class Told(NamedTuple):
    run_id: str
    #: Every message that the model got.
    contents: list[str]


def main() -> None:
    with TemporaryDirectory(prefix="interlock-demo-") as folder:
        asyncio.run(show_local_tools(Path(folder)))
        project, log = make_project(Path(folder, "project")), Path(folder, "log.db")
        told = asyncio.run(take_two_turns(project, log))
        look_back(told, log, project / "note.md")
        asyncio.run(show_policy(project))
    heading("Next")
    show("make test                          the checks and tests behind this")
    show(".venv/bin/python examples/loop.py  a loop of your own on a runtime")
    show("README.md, docs/guide.md           how to use it, step by step")
    show("docs/local-tools.md                the built-in tools")
    show("docs/sandbox.md                    what holds commands back")
    show("docs/policy.md                     rules and approvals")
    show(".venv/bin/interlock doctor         what this host allows")


async def take_two_turns(project: Path, path: Path) -> Told:
    log = SqliteLog(path)
    runtime = ToolRuntime(
        tools=tools_of(project),
        policy=POLICY,
        interaction=CallbackInteractionProvider(scripted_person),
        log=log,
        artifacts=FileArtifacts(project.parent / "artifacts"),
    )
    async with log, runtime:
        heading("4. A model asks for seven calls in one turn")
        for call in TURN:
            show(written(*call))
        first = await runtime.execute([model_call(*call) for call in TURN])
        events = [step.event for step in await runtime.replay()]

        heading("5. What became of them (time runs right: . waits, # runs, x refused)")
        show_timeline(first, events)
        heading("6. One refusal, three readers")
        show_readers(first, events, "c2")
        heading("7. A long output is cut around its failure, and all of it is kept")
        hint = show_cut(next(observation for observation in first.observations if observation.truncated))

        heading("8. The next turn follows the hint")
        second = await runtime.execute([model_call("c7", "read_artifact", hint)])
        show_output(second.observations[0])
        await runtime.complete("The demo is over.")
    return Told(runtime.run_id, [message["content"] for message in first.messages + second.messages])


def look_back(told: Told, log: Path, note: Path) -> None:
    heading("9. The log is verified, tampered with and replayed")
    entries = asyncio.run(read(log, told.run_id))
    audit = verify(entries, told.run_id)
    show(f"as it is      {style('ok', 'green') if audit.ok else audit.flaw}, {audit.count} events in one chain")

    audit = verify(asyncio.run(read(tampered_copy(log), told.run_id)), told.run_id)
    show_text(audit.flaw.message if audit.flaw else "not noticed", "one byte off  ")

    before = note.stat().st_mtime_ns, note.read_text()
    replay = Replay(entries)
    same = [message.text for message in replay.messages()] == told.contents
    untouched = (note.stat().st_mtime_ns, note.read_text()) == before
    show(f"replayed      {len(replay)} steps; the messages are {'the same' if same else 'different'};")
    show(f"              {note.name} is {'untouched, for nothing was executed' if untouched else 'changed'}")


async def read(log: Path, run_id: str) -> list[Any]:
    async with SqliteLog(log) as opened:
        return await opened.read(run_id)


def tampered_copy(log: Path) -> Path:
    """Somebody wants the record to name another file: `best_shop.py`."""
    content = bytearray(log.read_bytes())
    content[content.index(b"test_shop.py")] = ord("b")
    copy = log.with_name("tampered.db")
    copy.write_bytes(content)
    return copy


async def scripted_person(question: Question) -> Answer:
    print()
    show(style("a person is asked", "yellow"))
    show_text(question.prompt, "    ")
    show(f"{style('the answer', 'yellow')} (scripted, this demo asks nobody): yes")
    return Answer(approved=True, by="the demo's script")


def model_call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call as OpenAI's models send it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def written(call_id: str, name: str, arguments: dict[str, Any]) -> str:
    return f"{call_id}  {name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def show_timeline(result: BatchResult, events: list[Event]) -> None:
    shown: set[str] = set()
    for observation in result.observations:
        name = style(f"{observation.call_id}  {observation.tool:14}", "bold")
        if observation.call_id in shown:
            show(name + style("the same again: answered, not run twice", "dim"))
        else:
            shown.add(observation.call_id)
            code = style(f"{observation.code:15}", "green" if observation.ok else "red")
            took = "" if observation.duration_ms is None else f"{observation.duration_ms:.1f} ms"
            show(f"{name}{code}{took:>9}  {bar(observation.call_id, events)}")
            show("    " + way(observation))
            done = observation.content.text if observation.ok and observation.content else render_for_user(observation)
            show_text(done, "    ")
        print()


def way(observation: Observation) -> str:
    """The stages that the call came through. A tool may also fail in its own words; then it came all the way."""
    stages, failure = list(Phase), observation.failure
    if failure is None or failure.code not in CODES:
        return style(" ".join(stages[:-1]), "dim")
    return style(" ".join(stages[: stages.index(failure.phase) + 1]), "dim") + style(" <- stopped", "red")


def bar(call_id: str, events: list[Event]) -> str:
    """When the call waited and when it ran, on the time of the whole turn."""
    width, began = line_width() - 49, events[0].at
    scale = (events[-1].at - began) / width
    at = {event.type: int((event.at - began) / scale) for event in events if event.correlation_id == call_id}
    if "tool.invocation.started" not in at:
        return f"|{'x':{width + 1}}|"
    started, ended = at["tool.invocation.started"], at["tool.observation"]
    waited = "." * (started - at["tool.intent"])
    return f"|{waited.rjust(started) + '#' * (ended - started + 1):{width + 1}}|"


def show_readers(result: BatchResult, events: list[Event], call_id: str) -> None:
    message = next(message for message in result.messages if message["tool_call_id"] == call_id)
    observation = next(observation for observation in result.observations if observation.call_id == call_id)
    show_text(json.dumps(json.loads(message["content"])), "model   ")
    show_text(render_for_user(observation), "person  ")
    show_text(", ".join(f"{e.seq}:{e.type}" for e in events if e.correlation_id == call_id), "log     ")


def show_cut(cut: Observation) -> dict[str, Any]:
    """Show the excerpt, and return where the runtime says that the rest is."""
    show_output(cut)
    if cut.size is None or cut.next_tool is None:
        raise SystemExit("The output was not cut.")
    size, hint = cut.size, {**cut.next_tool.input_hint, "limit": 450}
    print()
    show(f"{size.produced:,} bytes = {size.shown:,} shown + {size.omitted:,} omitted; {size.kept:,} kept")
    show_text(written("", cut.next_tool.tool, hint).strip(), "hint  ")
    return hint


def show_output(observation: Observation) -> None:
    for line in observation.content.text.splitlines() if observation.content else ():
        show(style(line[: line_width() - 2], "dim"))


if __name__ == "__main__":
    main()
