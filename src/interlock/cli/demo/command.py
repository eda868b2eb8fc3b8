"""`interlock demo`: a failing project is repaired, a process dies on the way, and nothing is done twice. Offline.

The run is driven by separate processes (`process`): the first kills itself right after the approval of the
edit was recorded, the second resumes it. Everything shown is real except the scripted model.
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

from ...audit.verify import ChainVerification, verify
from ...domain import event as facts
from ...domain.errors import ConfigurationError
from ...domain.event import LogEntry, decode_event
from ...rendering.question import CHANGE_SIGNS, describe_tried_change
from ...rendering.text import pluralize
from ...sandbox.commands.probe import choose_sandbox
from ...sandbox.interface import Confinement
from ...storage.sqlite.log import SqliteLog
from ...undo import UndoReport, load_changed_run, select_calls, undo_calls
from ..display.live_region import neutralize_text, wrap_line
from ..display.output import echo, echo_table
from ..display.transcript import summarize_arguments
from ..exit_codes import ExitCode, format_exit_codes
from ..options import create_app
from ..session.undo import choose_person
from .process import CRASH, SURVIVE
from .scenario import EDIT, FIXED, PROJECT_FILES, RUN_ID, SOURCE, make_project, try_escapes

_EXITS = format_exit_codes(ok="done", failed="an unexpected result", interrupted="interrupted")
_END_LABELS = {
    ExitCode.OK: "Done in",
    ExitCode.FAILED: "Unexpected result, after",
    ExitCode.INTERRUPTED: "Interrupted after",
}
_PROCESS_MODULE = "interlock.cli.demo.process"
_WIDTH = 77
_NEXT_COMMANDS = (
    ('interlock run "TASK"', "the same with your model, in your directory"),
    ("interlock doctor", "how commands are sandboxed on this host"),
    ("interlock --help", "everything else"),
)

app = create_app()


class CallCounts(msgspec.Struct, frozen=True):
    """How often a call was asked, started and finished."""

    tool: str
    summary: str
    #: How often.
    asked: int
    started: int
    outcome: str


def read_entries(log: Path) -> list[LogEntry]:
    """Read the log entries of the demo run."""

    async def read() -> list[LogEntry]:
        async with SqliteLog(log) as opened:
            return await opened.read(RUN_ID)

    return asyncio.run(read())


def count_calls(entries: list[LogEntry]) -> list[CallCounts]:
    """Count, for each call of the demo, its questions and executions."""
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
        CallCounts(call.tool, summarize_arguments(call.raw_input), asked[key], started[key], outcomes.get(key, "open"))
        for key, call in known.items()
    ]


def audit_entries(entries: list[LogEntry]) -> ChainVerification:
    """Verify the hash chain of the demo run."""
    return verify(entries, RUN_ID)


def tamper_with(entries: list[LogEntry]) -> list[LogEntry]:
    """Return the entries with the recorded edit changed to name another file."""
    before, after = b"shop.py", b"shoq.py"
    place = next(n for n, entry in enumerate(entries) if before in entry.body and EDIT.encode() in entry.body)
    changed = msgspec.structs.replace(entries[place], body=entries[place].body.replace(before, after, 1))
    return [*entries[:place], changed, *entries[place + 1 :]]


@app.command(epilog=_EXITS)
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the project and the log, and print their path.")] = False,
) -> None:
    """Watch an agent repair a failing project: with an approval, a crash and a check of the facts.

    The model is scripted. Files, tests, sandbox, questions, crash and log are real, in a temporary directory.
    """
    started_at = time.monotonic()
    with _demo_folder(keep) as folder:
        code = _play_scenario(folder)
        _echo_next(folder if keep else None, f"{_END_LABELS[code]} {time.monotonic() - started_at:.1f} s. Next")
    raise typer.Exit(code)


def _play_scenario(folder: Path) -> ExitCode:
    _echo_heading("1. A project whose tests fail")
    project = make_project(folder)
    _echo_line(f"{project}: {', '.join(sorted(os.listdir(project)))}")
    _echo_line(_describe_confinement(choose_sandbox().confinement))
    _echo_heading("2. An agent works on it; the model is scripted, everything else is real")
    exit_status = _run_process(folder, CRASH)
    if exit_status == -signal.SIGKILL:
        _echo_heading(f"3. The process is dead (signal {-exit_status}). Another one continues")
        exit_status = _run_process(folder, SURVIVE)
    if exit_status == ExitCode.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if exit_status not in (ExitCode.OK, ExitCode.REFUSED):  # The person may refuse the edit.
        echo(f"  The process ended with the unexpected exit code {exit_status}.", error=True)
        return ExitCode.FAILED
    _echo_heading("4. What was asked and what ran, according to the log")
    is_fine = _echo_counts(folder)
    _echo_heading("5. What the run changed is put back, by edits and by commands")
    is_fine = _echo_undo(folder) and is_fine
    _echo_heading("6. Commands that are allowed to start, and what the sandbox stops")
    return ExitCode.OK if _echo_attempts(folder) and is_fine else ExitCode.FAILED


def _echo_undo(folder: Path) -> bool:
    """Undo the run, and say what was put back. Return whether the project is as it was."""

    async def undo() -> UndoReport:
        async with SqliteLog(folder / "runs.db") as log:
            run = await load_changed_run(log, RUN_ID)
            person = choose_person("the demo")
            return await undo_calls(log, run, select_calls(run), folder / "changes", person, requester="the demo")

    try:
        report = asyncio.run(undo())
    except ConfigurationError as error:  # everything was refused
        _echo_line(str(error))
        return True
    for change in report.preview.changes:
        _echo_line(f"{CHANGE_SIGNS[change.kind]} {describe_tried_change(change)}")
    if "overlay" not in choose_sandbox().confinement.capabilities:
        _echo_line("What commands changed stays: this host has no overlays to try them in. Edits were put back.")
        return report.is_done
    project = folder / "project"
    is_back = all((project / name).read_text() == text for name, text in PROJECT_FILES.items())
    _echo_line(f"the files are {'as they were' if is_back else 'NOT as they were'}; the undo is a run in the same log")
    return report.is_done and is_back


def _echo_attempts(folder: Path) -> bool:
    if "files" not in choose_sandbox().confinement.capabilities:
        _echo_line("Skipped: without a sandbox they might succeed. `interlock doctor` shows what to do.")
        return True
    if choose_sandbox().confinement.degraded:
        _echo_line("Each requires approval, which the demo gives itself.")
    tried = asyncio.run(try_escapes(folder))
    for attempt in tried:
        _echo_line(f"{attempt.what:32}{'WORKED' if attempt.has_worked else 'no'}: {attempt.message}")
    return not any(attempt.has_worked for attempt in tried)


def _echo_counts(folder: Path) -> bool:
    entries = read_entries(folder / "runs.db")
    calls = count_calls(entries)
    rows = [(f"  {each.tool}", str(each.asked), str(each.started), each.outcome, each.summary) for each in calls]
    echo_table(("  TOOL", "ASKED", "STARTED", "OUTCOME", "ON"), rows)
    times = (folder / "project" / SOURCE).read_text().count(FIXED)
    once = all(call.started <= 1 and call.asked <= 1 for call in calls)
    edits = [call for call in calls if call.tool == EDIT]
    twice, place = "yes" if once else "NO", f"{SOURCE} {pluralize(times, 'time')}"
    _echo_line(f"nothing was asked or started twice: {twice}; the fix is in {place}")
    audit, other = audit_entries(entries), audit_entries(tamper_with(entries))
    verified = "verified" if audit.ok else "NOT as written"
    _echo_line(f"the log: {pluralize(audit.count, 'event')} in one chain, {verified}")
    _echo_line(f"one letter of a copy changed: {other.flaw.message if other.flaw else 'NOT noticed'}")
    return once and audit.ok and not other.ok and times == sum(call.outcome == "ok" for call in edits)


def _run_process(folder: Path, fate: str) -> int:
    """Run the demo in a process. Return its exit code, or the negative number of a signal."""
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", _PROCESS_MODULE, str(folder), fate]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}) as process:  # noqa: S603 - our own module
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # The process on the terminal got it, too.
                continue


@contextmanager
def _demo_folder(keep: bool) -> Generator[Path]:
    if keep:
        yield Path(mkdtemp(prefix="interlock-demo-"))
        return
    with TemporaryDirectory(prefix="interlock-demo-") as folder:
        yield Path(folder)


def _describe_confinement(confinement: Confinement) -> str:
    if confinement.backend == "none":
        return "no sandbox works on this host: commands are not confined, so every command requires approval"
    if confinement.degraded:
        return f"commands run in {confinement.backend}, which confines only in part, so every command requires approval"
    return f"commands run in {confinement.backend}: no network, nothing outside the project"


def _echo_next(kept: Path | None, title: str) -> None:
    _echo_heading(title)
    if kept is not None:
        echo(Text(f"  interlock replay last --log {kept}/runs.db"))
    for command, about in _NEXT_COMMANDS:
        _echo_line(f"{command:24}{about}")


def _echo_heading(text: str) -> None:
    echo("")
    echo(Text(text, "bold"))


def _echo_line(text: str) -> None:
    for row in wrap_line(neutralize_text(text), _WIDTH):
        echo(Text(f"  {row}"))
