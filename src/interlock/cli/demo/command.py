"""`interlock demo`: a failing project is repaired, a process dies on the way, and nothing is done twice. Offline.

The run is moved on by processes of their own (`demo_process`): the first kills itself right after the approval of the
edit was recorded, the second goes on. What is shown is what happened: nothing here is canned but the model's words.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ...audit.verify import Audit, verify
from ...domain import event as facts
from ...domain.chain import Entry, decode_event
from ...sandbox.host.probe import choose
from ...sandbox.interface import Confinement
from ...storage.sqlite.log import SqliteLog
from ..display.formatting import acts_on
from ..display.live_text import harmless, rows_of
from ..display.output import count, say, say_table
from ..exit_codes import ExitCode, exits
from .process import DIES, LIVES
from .story import EDIT, FIXED, RUN_ID, SOURCE, make_project, try_to_get_out

_EXITS = exits(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "something was not as it should be",
        ExitCode.INTERRUPTED: "interrupted",
    }
)
_ENDED = {
    ExitCode.OK: "Done in",
    ExitCode.FAILED: "Not as it should be, after",
    ExitCode.INTERRUPTED: "Interrupted after",
}
_PROCESS = "interlock.cli.demo.process"
_WIDTH = 77
_NEXT = (
    ('interlock run "TASK"', "the same with a model of yours, in a folder of yours"),
    ("interlock doctor", "what holds commands back on this host"),
    ("interlock --help", "everything else"),
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class CallFacts(msgspec.Struct, frozen=True):
    tool: str
    acts_on: str
    #: How often.
    asked: int
    started: int
    outcome: str


def read_entries(log: Path) -> list[Entry]:
    async def read() -> list[Entry]:
        async with SqliteLog(log) as opened:
            return await opened.read(RUN_ID)

    return asyncio.run(read())


def call_facts(entries: list[Entry]) -> list[CallFacts]:
    known: dict[str, facts.CallProposed] = {}
    asked, started = Counter[str](), Counter[str]()
    outcomes: dict[str, str] = {}
    for fact in (decode_event(entry).fact for entry in entries):
        match fact:
            case facts.CallProposed():
                known.setdefault(fact.call_id, fact)
            case facts.ApprovalRequested():
                asked[fact.call_id] += 1
            case facts.InvocationStarted():
                started[fact.call_id] += 1
            case facts.CallObserved():
                outcomes[fact.observation.call_id] = fact.observation.code
            case _:
                pass
    return [
        CallFacts(call.tool, acts_on(call.raw_input), asked[call_id], started[call_id], outcomes.get(call_id, "open"))
        for call_id, call in known.items()
    ]


def audit_of(entries: list[Entry]) -> Audit:
    return verify(entries, RUN_ID)


def tampered(entries: list[Entry]) -> list[Entry]:
    """Somebody wants the record of the edit to name another file."""
    before, after = b"shop.py", b"shoq.py"
    place = next(n for n, entry in enumerate(entries) if before in entry.body and EDIT.encode() in entry.body)
    changed = msgspec.structs.replace(entries[place], body=entries[place].body.replace(before, after, 1))
    return [*entries[:place], changed, *entries[place + 1 :]]


@app.command(epilog=_EXITS)
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the project and the log, and say where.")] = False,
) -> None:
    """See it work: a project whose tests fail is repaired, with a question, a crash and a check of the facts.

    Scripted is what the model says. Files, tests, sandbox, questions, crash and log are real, in a temporary folder.
    """
    began = time.monotonic()
    with _folder(keep) as folder:
        code = _story(folder)
        _say_next(folder if keep else None, f"{_ENDED[code]} {time.monotonic() - began:.1f} s. Next")
    raise typer.Exit(code)


def _story(folder: Path) -> ExitCode:
    _heading("1. A project whose tests fail")
    project = make_project(folder)
    _line(f"{project}: {', '.join(sorted(os.listdir(project)))}")
    _line(_held_back(choose().confinement))
    _heading("2. An agent looks into it; the model is a script, all else is real")
    ended = _process(folder, DIES)
    if ended == -signal.SIGKILL:
        _heading(f"3. The process is dead (signal {-ended}). Another one goes on")
        ended = _process(folder, LIVES)
    if ended == ExitCode.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if ended != 0:
        say(f"  The process ended with {ended}, which it should not.", error=True)
        return ExitCode.FAILED
    _heading("4. What was asked, and what ran, by the log")
    is_fine = _show_facts(folder)
    _heading("5. Commands that may start, and still cannot reach further")
    return ExitCode.OK if _show_attempts(folder) and is_fine else ExitCode.FAILED


def _show_attempts(folder: Path) -> bool:
    if "files" not in choose().confinement.capabilities:
        _line("Nothing is tried: without a sandbox it might work. `interlock doctor` says what to do.")
        return True
    if choose().confinement.degraded:
        _line("Each of them asks, and the demo itself says yes.")
    tried = asyncio.run(try_to_get_out(folder))
    for attempt in tried:
        _line(f"{attempt.what:32}{'WORKED' if attempt.worked else 'no'}: {attempt.said}")
    return not any(attempt.worked for attempt in tried)


def _show_facts(folder: Path) -> bool:
    entries = read_entries(folder / "runs.db")
    calls = call_facts(entries)
    say_table(("  TOOL", "ASKED", "STARTED", "OUTCOME", "ON"), [_row(call) for call in calls])
    times = (folder / "project" / SOURCE).read_text().count(FIXED)
    once = all(call.started <= 1 and call.asked <= 1 for call in calls)
    edits = [call for call in calls if call.tool == EDIT]
    _line(f"nothing was asked or started twice: {_yes(once)}; the fix is in {SOURCE} {count(times, 'time')}")
    audit, other = audit_of(entries), audit_of(tampered(entries))
    _line(f"the log: {count(audit.count, 'event')} in one chain, {'verified' if audit.ok else 'NOT as written'}")
    _line(f"one letter of a copy changed: {other.flaw.message if other.flaw else 'NOT noticed'}")
    return once and audit.ok and not other.ok and times == sum(call.outcome == "ok" for call in edits)


def _row(call: CallFacts) -> tuple[str, ...]:
    return f"  {call.tool}", str(call.asked), str(call.started), call.outcome, call.acts_on


def _process(folder: Path, fate: str) -> int:
    """Its end: an exit code, or the signal that ended it as a negative number."""
    sys.stdout.flush()
    words = [sys.executable, "-P", "-m", _PROCESS, str(folder), fate]
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(folder)}) as process:  # noqa: S603 - our own module
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # The process on the terminal got it, too.
                continue


@contextmanager
def _folder(keep: bool) -> Generator[Path]:
    if keep:
        yield Path(mkdtemp(prefix="interlock-demo-"))
        return
    with TemporaryDirectory(prefix="interlock-demo-") as folder:
        yield Path(folder)


def _held_back(held: Confinement) -> str:
    if held.backend == "none":
        return "no sandbox works on this host: nothing holds commands back, so every command asks"
    if held.degraded:
        return f"commands run in {held.backend}, which holds back less than it should, so each asks"
    return f"commands run in {held.backend}: no network, nothing outside the project"


def _say_next(kept: Path | None, title: str) -> None:
    _heading(title)
    if kept is not None:
        say(Text(f"  interlock replay last --log {kept}/runs.db"))
    for command, about in _NEXT:
        _line(f"{command:24}{about}")


def _heading(text: str) -> None:
    say("")
    say(Text(text, "bold"))


def _line(text: str) -> None:
    for row in rows_of(harmless(text), _WIDTH):
        say(Text(f"  {row}"))


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "NO"
