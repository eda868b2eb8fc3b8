"""`interlock replay`: go through a recorded run, event by event. Nothing is executed."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from ...domain.errors import ConfigurationError, LogCorruptError
from ...domain.event import Event
from ...replay.trace import Replay
from ..config.logs import LogFile, RunName, read_run
from ..display.events import event_lines, row, state_lines, state_of
from ..display.output import count, say, say_json, say_table
from ..exit_codes import ExitCode, exits
from ..options import Json

_EXITS = exits(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "the log is not what was written, or it comes out differently now",
        ExitCode.USAGE: "bad usage, or something that cannot be read",
    }
)
_KEYS = "[Enter] next  [b] back  [number] go there  [q] quit: "

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Asked(msgspec.Struct, frozen=True):
    """What to show of a run."""

    at: int | None
    step: bool
    as_json: bool
    log: Path | None = None
    agent: str = ""


@app.command(epilog=_EXITS)
def replay(  # noqa: PLR0913 - one for each option
    run: RunName,
    *,
    at: Annotated[int | None, typer.Option(metavar="N", help="Show event N and the state right after it.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Go event by event, at a terminal.")] = False,
    mode: Annotated[
        Literal["trace", "model", "dry-run"],
        typer.Option(
            help="trace: show what was recorded. model: let the recorded answers go through today's code, and "
            "compare. dry-run: show what would be decided now."
        ),
    ] = "trace",
    agent: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="With model and dry-run: where your agent comes from, package.module:function. Default: the agent "
            "of `interlock run`.",
            show_default=False,
        ),
    ] = "",
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Go through a recorded run. Nothing is executed, in any mode."""
    found = read_run(log, run)
    try:
        recorded = Replay(found.entries)
    except LogCorruptError as error:
        say(f"interlock: {error}. `interlock audit verify {found.run_id}` says more.", error=True)
        raise typer.Exit(ExitCode.FAILED) from None
    _MODES[mode](recorded, Asked(at, step, as_json, log, agent))


def _trace(recorded: Replay, asked: Asked) -> None:
    events = [step.event for step in recorded]
    if asked.at is not None and not 0 <= asked.at < len(events):
        raise ConfigurationError(f"{recorded.run_id} has events 0 to {len(events) - 1}, not {asked.at}.")
    if asked.step:
        _step_through(recorded, events, asked.at or 0)
    elif asked.at is not None:
        _show_at(recorded, events, asked.at, asked.as_json)
    elif asked.as_json:
        say_json({"run_id": recorded.run_id, "events": events})
    else:
        say(f"{recorded.run_id}: {_outline(recorded, events)}")
        say_table(("EVENT", "SECONDS", "WHAT", ""), [row(event, events[0].at) for event in events])


def _outline(recorded: Replay, events: list[Event]) -> str:
    state = recorded.at(len(events) - 1).state
    return f"{count(len(events), 'event')} in {(events[-1].at - events[0].at) / 1e9:.3f} s, {state}"


def _show_at(recorded: Replay, events: list[Event], at: int, as_json: bool) -> None:
    ledger = recorded.at(at)
    if as_json:
        say_json({"event": events[at], "state": state_of(ledger)})
        return
    _, seconds, what, _ = row(events[at], events[0].at)
    say(f"event {at} of {len(events):,}, after {seconds.strip()} s: {what}")
    for line in (*event_lines(events[at]), "the run right after it:", *state_lines(ledger)):
        say(line)


def _step_through(recorded: Replay, events: list[Event], at: int) -> None:
    if not sys.stdin.isatty():
        raise ConfigurationError("Stepping needs a terminal. `--at N` shows one event, and without it all are listed.")
    while 0 <= at < len(events):
        _show_at(recorded, events, at, as_json=False)
        said = _typed()
        if said == "q":
            return
        at = _next(at, said, len(events) - 1)


def _next(at: int, said: str, last: int) -> int:
    if said.isdecimal():
        return min(int(said[:9]), last)
    return max(at - 1, 0) if said == "b" else at + 1


def _typed() -> str:
    try:
        return input(_KEYS).strip().lower()
    except EOFError:
        return "q"


def _again(mode: str) -> Callable[[Replay, Asked], None]:
    """What goes through today's code is loaded only when it is used."""

    def go(recorded: Replay, asked: Asked) -> None:
        if asked.at is not None or asked.step:
            raise ConfigurationError(f"--at and --step are for the mode trace, not for {mode}.")
        again = import_module("interlock.cli.session.replay")
        again.MODES[mode](recorded, again.Where(asked.log, asked.agent), asked.as_json)

    return go


#: What `--mode` may be.
_MODES: Mapping[str, Callable[[Replay, Any], None]] = {
    "trace": _trace,
    "model": _again("model"),
    "dry-run": _again("dry-run"),
}
