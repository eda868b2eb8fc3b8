"""`interlock audit`: a run as a file that anybody can check, and the check."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..domain.errors import ConfigurationError
from ..history.export import to_json, to_ndjson
from ..history.verify import Audit, Checkpoint, verify
from .exit_codes import ExitCode, exits
from .logs import LogFile, RunName, read_run
from .new_file import write_new
from .options import Json
from .recordings import nameless_runs, read_runs
from .show import count, say, say_json

_EXITS = exits(
    {
        ExitCode.OK: "done, and the log is what was written",
        ExitCode.FAILED: "it is not",
        ExitCode.USAGE: "bad usage, or something that cannot be read",
    }
)
_HASH_BYTES = 32
_FORMS = {"ndjson": to_ndjson, "json": to_json}

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)


@app.callback()
def audit() -> None:
    """Export runs, and check that a log is what was written."""


@app.command(epilog=_EXITS)
def export(
    run: RunName,
    form: Annotated[
        Literal["ndjson", "json"], typer.Option("--format", help="A line per event, or one array.")
    ] = "ndjson",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file. Default: standard output.")
    ] = None,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Write a run as a file that anybody can check.

    The events are written as they are stored, byte for byte. The checkpoint, said on stderr, shows later that nothing
    was cut off or made anew: keep it somewhere else.
    """
    if output is None and (as_json or sys.stdout.isatty()):
        raise ConfigurationError(
            "An export is the stored bytes, which a terminal may obey: name a file with -o, or use a pipe."
        )
    found = read_run(log, run)
    checked = verify(found.entries, found.run_id, trace=found.trace)
    _write(output, _FORMS[form](found.entries))
    if as_json:
        say_json({**_result(found.run_id, checked), "path": str(output)})
    else:
        _say(found.run_id, checked, error=True)
    if not checked.ok:
        raise typer.Exit(ExitCode.FAILED)


@app.command("verify", epilog=_EXITS)
def verify_run(
    what: Annotated[
        str, typer.Argument(metavar="RUN|FILE", help="A run, or an export or a log as a file.", show_default=False)
    ],
    checkpoint: Annotated[
        str, typer.Option(metavar="COUNT:HASH", help="What an earlier export or check said.", show_default=False)
    ] = "",
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Check that a run, or every run of a file, is what was written.

    Says the first event that is not, and what happened to it.
    """
    expected = _checkpoint(checkpoint) if checkpoint else None
    runs, nameless = (read_runs(what), nameless_runs(what)) if _is_file(what) else ([read_run(log, what)], 0)
    if expected and len(runs) > 1:
        raise ConfigurationError(f"A checkpoint is of one run, and {what} has {len(runs):,}.")
    checked = {run.run_id: verify(run.entries, run.run_id, expected, run.trace) for run in runs}
    if as_json:
        say_json([{**_result(run_id, each), "end_checked": expected is not None} for run_id, each in checked.items()])
    else:
        _say_all(checked, end_checked=expected is not None)
    if nameless:
        say(f"interlock: {what} is not what was written: {count(nameless, 'run')} with events, but no name", error=True)
    elif not checked:
        say(f"interlock: {what} holds no event", error=True)
    if nameless or not checked or not all(each.ok for each in checked.values()):
        raise typer.Exit(ExitCode.FAILED)


def _say_all(checked: dict[str, Audit], *, end_checked: bool) -> None:
    for run_id, each in checked.items():
        _say(run_id, each, error=False)
    if not end_checked and any(each.ok for each in checked.values()):
        say("  Events that were cut off at the end are seen only with an earlier checkpoint: --checkpoint COUNT:HASH.")


def _is_file(what: str) -> bool:
    return os.sep in what or what.endswith((".ndjson", ".json", ".db")) or os.path.isfile(what)


def _checkpoint(text: str) -> Checkpoint:
    count, _, head_hash = text.partition(":")
    try:
        found = Checkpoint(int(count), bytes.fromhex(head_hash))
    except ValueError:
        found = Checkpoint(-1, b"")
    if found.count < 0 or len(found.head_hash) != _HASH_BYTES:
        raise typer.BadParameter(
            "a checkpoint is a number of events and a hash, as in 12:5eed...", param_hint="--checkpoint"
        )
    return found


def _result(run_id: str, checked: Audit) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "ok": checked.ok,
        "events": checked.count,
        "checkpoint": _mark(checked),
        "flaw": checked.flaw,
    }


def _say(run_id: str, checked: Audit, *, error: bool) -> None:
    name = run_id or "a run without a name"
    if checked.flaw is None:
        say(f"{name}: {count(checked.count, 'event')}, in one unbroken chain", error=error)
        say(f"  checkpoint {_mark(checked)}", error=error)
    else:
        say(f"{name}: not what was written: {checked.flaw.message}", error=error)
        say(f"  in order before it: {count(checked.count, 'event')}", error=error)


def _mark(checked: Audit) -> str:
    """What `--checkpoint` takes; empty where nothing should be built on it."""
    return f"{checked.count}:{checked.head_hash.hex()}" if checked.ok else ""


def _write(output: Path | None, parts: Iterator[bytes]) -> None:
    if output is None:
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    write_new(output, parts)
