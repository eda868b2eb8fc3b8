"""Details of one run, collected from the log, and their output."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from ...domain.call import Question
from ...domain.event import CallObserved, ModelRequested, RunStarted, decode_event
from ...domain.messages import Usage
from ...domain.outcome import ArtifactRef
from ...domain.state.ledger import Ledger
from ...domain.state.verification import Verification
from ...history.fold import fold_entries, load_run
from ...rendering.run_states import DisplayState, describe_owner
from ...rendering.text import pluralize, shorten_line
from ...rendering.times import format_duration, format_expiry, format_local_time
from ...storage.event_log import EventLog
from ..config.logs import (
    add_log_option,
    find_waiting_reason,
    is_in_database,
    is_nested_in,
    resolve_run,
    shorten_artifact_id,
    shorten_id,
)
from .live import format_diff, format_output, is_command
from .output import echo
from .run_list import get_display_state
from .transcript import EventFormatter, RunPrinter, TranscriptLine, style_state


class NestedRun(msgspec.Struct, frozen=True):
    """A child run."""

    run_id: str
    state: DisplayState
    agent: str


class RunDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Everything shown about one run."""

    run_id: str
    state: DisplayState
    #: The process that has it; empty: none that is alive.
    held_by: str
    started: RunStarted
    started_at: int
    changed_at: int
    events: int
    model: str
    message: str
    transcript: tuple[TranscriptLine, ...]
    #: Of runs inside of it, too.
    questions: tuple[Question, ...]
    verification: Verification
    conflict: str
    usage: Usage
    requests: int
    tool_calls: int
    active_ms: float
    artifacts: tuple[ArtifactRef, ...]
    inside: tuple[NestedRun, ...]
    forks: tuple[str, ...]
    #: Why no worker continues it.
    waiting_reason: str = ""


async def load_run_details(log: EventLog, run_ref: str) -> RunDetails:
    """Load the details of a run that is named by its id, by the first letters of it, or as `last`."""
    run_id, holders = await resolve_run(log, run_ref), await log.lease_holders()
    entries = await log.read(run_id)
    ledger = fold_entries(run_id, entries)
    events = [decode_event(entry) for entry in entries]
    nested = [(await load_run(log, other)).ledger for other in await log.run_ids() if is_nested_in(other, run_id)]
    questions = [question for each in (ledger, *nested) for question in each.open_questions()]
    first, formatter = events[0].fact, EventFormatter()
    asked = [event.fact for event in events if isinstance(event.fact, ModelRequested)]
    observations = [event.fact.observation for event in events if isinstance(event.fact, CallObserved)]
    artifacts: dict[str, ArtifactRef] = {}
    for artifact in (artifact for each in observations for artifact in each.artifacts):
        artifacts.setdefault(artifact.id, artifact)
    return RunDetails(
        run_id=run_id,
        state=get_display_state(ledger, questions, is_held=run_id in holders),
        held_by=holders.get(run_id, ""),
        started=first if isinstance(first, RunStarted) else RunStarted(schema=1),
        started_at=events[0].at,
        changed_at=events[-1].at,
        events=len(events),
        model=" ".join(filter(None, (asked[-1].provider, asked[-1].model))) if asked else "",
        message=ledger.message,
        transcript=tuple(line for event in events if (line := formatter.format_event(event)) is not None),
        questions=tuple(questions),
        verification=ledger.checks.summarize(),
        conflict=ledger.dialogue.conflict,
        usage=ledger.dialogue.usage,
        requests=ledger.dialogue.requests,
        tool_calls=len(ledger.calls),
        active_ms=ledger.dialogue.active_ms,
        artifacts=tuple(artifacts.values()),
        inside=tuple(NestedRun(each.run_id, _display_state(each, holders), each.agent) for each in nested),
        forks=await _list_forks(log, run_id),
        waiting_reason=await find_waiting_reason(log, run_id),
    )


def details_to_json(details: RunDetails) -> dict[str, Any]:
    """Return the details for JSON output."""
    plain: dict[str, Any] = msgspec.to_builtins(details, str_keys=True)
    plain["conversation"] = [
        {"who": line.who, "what": line.what, "outcome": line.outcome, "output": _get_output(line)}
        for line in details.transcript
    ]
    del plain["transcript"]
    started = plain.pop("started")
    return {**{name: value for name, value in started.items() if name not in ("type", "schema")}, **plain}


def _get_output(line: TranscriptLine) -> str:
    content = line.observation.content if line.observation is not None else None
    return content.text if content is not None else ""


def _display_state(ledger: Ledger, holders: Mapping[str, str]) -> DisplayState:
    return get_display_state(ledger, ledger.open_questions(), is_held=ledger.run_id in holders)


async def _list_forks(log: EventLog, run_id: str) -> tuple[str, ...]:
    name = run_id.encode()
    firsts = [decode_event(ends.first) for ends in await log.list_runs() if name in ends.first.body]
    return tuple(
        first.run_id for first in firsts if isinstance(first.fact, RunStarted) and first.fact.forked_from == run_id
    )


_MAX_TRANSCRIPT_LINES = 40
_MAX_OUTPUT_LINES = 5
_MAX_ARTIFACTS = 10


def echo_run_details(details: RunDetails, now: int, log: Path | None) -> None:
    """Print a run: its state, facts and recent entries."""
    where = f"in {details.held_by}, " if details.held_by else ""
    activity = f", {where}last event {format_duration(now - details.changed_at)} ago"
    echo("run ", shorten_id(details.run_id), ": ", style_state(details.state), activity)
    waiting = [("waits", details.waiting_reason)] if details.waiting_reason else []
    for label, text in (*waiting, *_list_facts(details)):
        echo(Text(f"  {label + ':':14}"), text)
    rows = RunPrinter()
    if details.transcript:
        echo("")
    for entry in _cut_middle(details.transcript):
        rows.print_line(entry)
        observation = entry.observation
        if observation is not None and is_command(observation):
            rows.print_rows(format_output(observation, rows.width, log, _MAX_OUTPUT_LINES))
        elif (
            observation is not None and observation.ok and observation.content and observation.content.format == "diff"
        ):
            rows.print_rows(format_diff(observation.content.text, observation.truncated))
    for title, lines in _list_sections(details, now):
        echo("")
        echo(title)
        for line in lines:
            echo(f"  {line}")
    echo("")
    echo("next:")
    for command in suggest_commands(details, has_workers=is_in_database(log)):
        echo(f"  {add_log_option(command, log)}")


def suggest_commands(details: RunDetails, *, has_workers: bool = False) -> list[str]:
    """Return suggested commands, the most likely first. Where there are workers, they resume runs."""
    name = shorten_id(details.run_id)
    questions = [f"interlock approvals show {shorten_id(question.action_id)}" for question in details.questions[:1]]
    commands = {
        **dict.fromkeys(filter(lambda state: state.is_paused, DisplayState), ("runs resume", "runs cancel")),
        DisplayState.IDLE: ("chat --resume", "runs resume", "runs cancel"),
        DisplayState.STOPPED: ("runs resume", "runs cancel"),
        DisplayState.RUNNING: ("runs watch", "runs cancel"),
    }.get(details.state, ("replay", "runs fork", "audit verify"))
    if has_workers and any("resume" in command for command in commands):
        commands = ("runs watch", "runs cancel")
    if "framework" in details.started.settings or details.started.is_session:  # its own program resumes it
        commands = tuple(command for command in commands if "resume" not in command and "fork" not in command)
    shown = questions if details.state.is_paused else []
    return [*shown, *(f"interlock {command} {name}" for command in commands)]


def _list_facts(details: RunDetails) -> Iterator[tuple[str, str]]:
    started, usage = details.started, details.usage
    yield "id", details.run_id
    if (started.agent and not started.is_session) or details.model:
        yield "agent", ", ".join(part for part in (started.agent, details.model) if part)
    framework, is_session = started.settings.get("framework", ""), started.is_session
    if owner := describe_owner(framework, started.agent, is_session=is_session):
        yield "session of" if is_session else "framework", owner
    if started.workspace:
        yield "workspace", started.workspace
    policy = started.settings.get("policy", "")
    yield "mode", f"{started.mode} at the start{f', policy {policy}' if policy else ''}"
    if started.requester:
        yield "for", started.requester
    yield "started", f"{format_local_time(details.started_at)}, {pluralize(details.events, 'event')}"
    if started.parent_run_id:
        yield "inside of", f"{shorten_id(started.parent_run_id)}, call {started.parent_call_id}"
    if started.forked_from:
        yield "fork of", f"{shorten_id(started.forked_from)} at event {started.forked_at}"
    if details.requests:
        cost = f", cost {usage.cost:.4g}" if usage.cost else ""
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        counts = f"{pluralize(details.requests, 'request')}, {pluralize(details.tool_calls, 'call')}"
        yield "used", f"{counts}, {tokens}{cost}"
    if details.message and details.state is not DisplayState.COMPLETED:
        yield "ended with", shorten_line(details.message)
    yield "verification", f"{details.verification.status}: {details.verification.message}"
    if details.conflict:
        yield "conflict", details.conflict


def _cut_middle(lines: tuple[TranscriptLine, ...]) -> Iterator[TranscriptLine]:
    half = _MAX_TRANSCRIPT_LINES // 2
    if len(lines) <= _MAX_TRANSCRIPT_LINES:
        yield from lines
        return
    more = f"{len(lines) - _MAX_TRANSCRIPT_LINES:,} more; `interlock runs show --transcript` has all"
    yield from (*lines[:half], TranscriptLine("...", more, style="dim"), *lines[-half:])


def _list_sections(details: RunDetails, now: int) -> Iterator[tuple[str, list[str]]]:
    if details.questions:
        yield "open questions:", [_format_question(question, details, now) for question in details.questions]
    if details.inside:
        inside = [f"{shorten_id(each.run_id)}  {each.state}  {each.agent}" for each in details.inside]
        yield "runs inside its calls:", inside
    if details.forks:
        yield "forks:", [shorten_id(run_id) for run_id in details.forks]
    if details.artifacts:
        more = len(details.artifacts) - _MAX_ARTIFACTS
        lines = [
            f"{shorten_artifact_id(each.id)}  {each.kind}, {each.size_bytes:,} bytes"
            for each in details.artifacts[:_MAX_ARTIFACTS]
        ]
        yield "artifacts (`interlock artifacts show ID`):", [*lines, f"... {more:,} more"] if more > 0 else lines


def _format_question(question: Question, details: RunDetails, now: int) -> str:
    where = "" if question.run_id == details.run_id else f" in run {shorten_id(question.run_id)}"
    asked = f"asked {format_duration(now - question.asked_at)} ago" if question.asked_at else "asked"
    ends = f", ends {format_expiry(question.expires_at, now)}" if question.expires_at else ""
    return f"{shorten_id(question.action_id)}  {shorten_line(question.headline)}{where}, {asked}{ends}"
