"""`interlock replay`: go through a recorded run, event by event. Nothing is executed."""

import sys
from importlib import import_module
from typing import Annotated, Literal

import typer

from ...domain.errors import ConfigurationError, LogUnreadableError
from ...domain.event import Event
from ...rendering.text import pluralize
from ...replay.trace import Replay
from ..config.logs import RunArgument, read_run
from ..display.output import echo, echo_json, echo_table
from ..display.transcript import format_event, format_event_row, format_state, state_to_json
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption, LogOption, create_app, option

_EXITS = format_exit_codes(
    ok="done",
    failed="the log was modified, or the result differs now",
    usage="bad usage, or a file that cannot be read",
)
_STEP_PROMPT = "[Enter] next  [b] back  [number] go to event  [q] quit: "

app = create_app()


@app.command(epilog=_EXITS)
def replay(  # noqa: PLR0913 - one for each option
    run: RunArgument,
    *,
    at: Annotated[int | None, option("Event to show, with the state right after it.", metavar="N")] = None,
    step: Annotated[bool, typer.Option("--step", help="Step through the events interactively.")] = False,
    mode: Annotated[
        Literal["trace", "model", "dry-run"],
        typer.Option(
            help="What to replay. trace: the recorded events. model: the recorded responses through the current code, "
            "compared. dry-run: what the current policy would decide."
        ),
    ] = "trace",
    agent: Annotated[
        str,
        option(
            "With model and dry-run: your agent, as package.module:function. Default: the agent of `interlock run`.",
            metavar="PLACE",
        ),
    ] = "",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go through a recorded run. Nothing is executed, in any mode."""
    found = read_run(log, run)
    try:
        recorded = Replay(found.entries)
    except LogUnreadableError as error:
        echo(f"interlock: {error}. `interlock audit verify {found.run_id}` says more.", error=True)
        raise typer.Exit(ExitCode.FAILED) from None
    if mode == "trace":
        _show_trace(recorded, at, step, as_json)
        return
    if at is not None or step:
        raise ConfigurationError(f"--at and --step require --mode trace, not {mode}.")
    # What goes through today's code is loaded only when it is used.
    again = import_module("interlock.cli.session.replay")
    again.REPLAY_MODES[mode](recorded, again.ReplayTarget(log, agent), as_json)


def _show_trace(recorded: Replay, at: int | None, step: bool, as_json: bool) -> None:
    events = [each.event for each in recorded]
    if at is not None and not 0 <= at < len(events):
        raise ConfigurationError(f"{recorded.run_id} has no event {at}. Its events are 0 to {len(events) - 1}.")
    if step:
        _step_through(recorded, events, at or 0)
    elif at is not None:
        _show_event(recorded, events, at, as_json)
    elif as_json:
        echo_json({"run_id": recorded.run_id, "events": events})
    else:
        state = recorded.state_at(len(events) - 1).state
        seconds = (events[-1].at - events[0].at) / 1e9
        echo(f"{recorded.run_id}: {pluralize(len(events), 'event')} in {seconds:.3f} s, {state}")
        echo_table(("EVENT", "SECONDS", "WHAT", ""), [format_event_row(event, events[0].at) for event in events])


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
        raise ConfigurationError("--step requires a terminal. Use --at N for one event, or neither to list all.")
    while 0 <= at < len(events):
        _show_event(recorded, events, at, as_json=False)
        try:
            step = input(_STEP_PROMPT).strip().lower()
        except EOFError:
            return
        if step == "q":
            return
        following = max(at - 1, 0) if step == "b" else at + 1
        at = min(int(step[:9]), len(events) - 1) if step.isdecimal() else following
