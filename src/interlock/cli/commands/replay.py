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
from ...rendering.text import pluralize
from ...replay.trace import Replay
from ..config.logs import LogOption, RunArgument, read_run
from ..display.event_format import format_event, format_event_row, format_state, state_to_json
from ..display.output import echo, echo_json, echo_table
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption

_EXITS = format_exit_codes(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "the log is not what was written, or it comes out differently now",
        ExitCode.USAGE: "bad usage, or something that cannot be read",
    }
)
_STEP_PROMPT = "[Enter] next  [b] back  [number] go there  [q] quit: "

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class ReplayOptions(msgspec.Struct, frozen=True):
    """What to show of a run."""

    at: int | None
    step: bool
    as_json: bool
    log: Path | None = None
    agent: str = ""


@app.command(epilog=_EXITS)
def replay(  # noqa: PLR0913 - one for each option
    run: RunArgument,
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
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go through a recorded run. Nothing is executed, in any mode."""
    found = read_run(log, run)
    try:
        recorded = Replay(found.entries)
    except LogCorruptError as error:
        echo(f"interlock: {error}. `interlock audit verify {found.run_id}` says more.", error=True)
        raise typer.Exit(ExitCode.FAILED) from None
    _MODES[mode](recorded, ReplayOptions(at, step, as_json, log, agent))


def _show_trace(recorded: Replay, options: ReplayOptions) -> None:
    events = [step.event for step in recorded]
    if options.at is not None and not 0 <= options.at < len(events):
        raise ConfigurationError(f"{recorded.run_id} has events 0 to {len(events) - 1}, not {options.at}.")
    if options.step:
        _step_through(recorded, events, options.at or 0)
    elif options.at is not None:
        _show_event(recorded, events, options.at, options.as_json)
    elif options.as_json:
        echo_json({"run_id": recorded.run_id, "events": events})
    else:
        echo(f"{recorded.run_id}: {_summarize(recorded, events)}")
        echo_table(("EVENT", "SECONDS", "WHAT", ""), [format_event_row(event, events[0].at) for event in events])


def _summarize(recorded: Replay, events: list[Event]) -> str:
    state = recorded.state_at(len(events) - 1).state
    return f"{pluralize(len(events), 'event')} in {(events[-1].at - events[0].at) / 1e9:.3f} s, {state}"


def _show_event(recorded: Replay, events: list[Event], at: int, as_json: bool) -> None:
    ledger = recorded.state_at(at)
    if as_json:
        echo_json({"event": events[at], "state": state_to_json(ledger)})
        return
    _, seconds, what, _ = format_event_row(events[at], events[0].at)
    echo(f"event {at} of {len(events):,}, after {seconds.strip()} s: {what}")
    for line in (*format_event(events[at]), "the run right after it:", *format_state(ledger)):
        echo(line)


def _step_through(recorded: Replay, events: list[Event], at: int) -> None:
    if not sys.stdin.isatty():
        raise ConfigurationError("Stepping needs a terminal. `--at N` shows one event, and without it all are listed.")
    while 0 <= at < len(events):
        _show_event(recorded, events, at, as_json=False)
        step = _read_step()
        if step == "q":
            return
        at = _next_position(at, step, len(events) - 1)


def _next_position(at: int, step: str, last: int) -> int:
    if step.isdecimal():
        return min(int(step[:9]), last)
    return max(at - 1, 0) if step == "b" else at + 1


def _read_step() -> str:
    try:
        return input(_STEP_PROMPT).strip().lower()
    except EOFError:
        return "q"


def _lazy_mode(mode: str) -> Callable[[Replay, ReplayOptions], None]:
    """What goes through today's code is loaded only when it is used."""

    def run_mode(recorded: Replay, asked: ReplayOptions) -> None:
        if asked.at is not None or asked.step:
            raise ConfigurationError(f"--at and --step are for the mode trace, not for {mode}.")
        again = import_module("interlock.cli.session.replay")
        again.REPLAY_MODES[mode](recorded, again.ReplayTarget(asked.log, asked.agent), asked.as_json)

    return run_mode


#: What `--mode` may be.
_MODES: Mapping[str, Callable[[Replay, Any], None]] = {
    "trace": _show_trace,
    "model": _lazy_mode("model"),
    "dry-run": _lazy_mode("dry-run"),
}
