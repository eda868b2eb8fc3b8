"""What there is to know about one run, gathered from the log, and how it is shown."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from ...domain.call import Question
from ...domain.chain import decode_event
from ...domain.event import CallObserved, Event, ModelAsked, RunStarted
from ...domain.messages import Usage
from ...domain.outcome import ArtifactRef
from ...domain.state.ledger import Ledger
from ...domain.state.verification import Verification
from ...history.fold import fold, load
from ...storage.event_log import EventLog
from ..config.logs import is_inside, short, with_log
from .formatting import StateWord, date_and_time, first_words, for_how_long, state_text, until
from .output import count, say
from .run_events import Rows, Story, Told
from .run_list import state_word


class Inside(msgspec.Struct, frozen=True):
    """A run inside a call of this one."""

    run_id: str
    state: StateWord
    agent: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    state: StateWord
    #: The process that has it; empty: none that is alive.
    held_by: str
    started: RunStarted
    started_at: int
    changed_at: int
    events: int
    model: str
    message: str
    told: tuple[Told, ...]
    #: Of runs inside of it, too.
    questions: tuple[Question, ...]
    verification: Verification
    conflict: str
    usage: Usage
    requests: int
    tool_calls: int
    active_ms: float
    artifacts: tuple[ArtifactRef, ...]
    inside: tuple[Inside, ...]
    forks: tuple[str, ...]


async def picture(log: EventLog, run_id: str, held: Mapping[str, str]) -> Picture:
    entries = await log.read(run_id)
    ledger = fold(run_id, entries)
    events = [decode_event(entry) for entry in entries]
    within = [(await load(log, other)).ledger for other in await log.run_ids() if is_inside(other, run_id)]
    questions = [question for each in (ledger, *within) for question in each.open_questions()]
    first = events[0].fact
    return Picture(
        run_id=run_id,
        state=state_word(ledger, len(questions), held=run_id in held),
        held_by=held.get(run_id, ""),
        started=first if isinstance(first, RunStarted) else RunStarted(schema=1),
        started_at=events[0].at,
        changed_at=events[-1].at,
        events=len(events),
        model=_model(events),
        message=ledger.message,
        told=tuple(_told(events)),
        questions=tuple(questions),
        verification=ledger.checks.verdict(),
        conflict=ledger.dialogue.conflict,
        usage=ledger.dialogue.usage,
        requests=ledger.dialogue.requests,
        tool_calls=len(ledger.calls),
        active_ms=ledger.dialogue.active_ms,
        artifacts=tuple(_artifacts(events)),
        inside=tuple(Inside(each.run_id, _word(each, held), each.agent) for each in within),
        forks=await _forks(log, run_id),
    )


def as_plain(shown: Picture) -> dict[str, Any]:
    """For programs."""
    plain: dict[str, Any] = msgspec.to_builtins(shown, str_keys=True)
    plain["conversation"] = [{"who": told.who, "what": told.what, "outcome": told.outcome} for told in shown.told]
    del plain["told"]
    started = plain.pop("started")
    return {**{name: value for name, value in started.items() if name not in ("type", "schema")}, **plain}


def _word(ledger: Ledger, held: Mapping[str, str]) -> StateWord:
    return state_word(ledger, len(ledger.open_questions()), held=ledger.run_id in held)


def _told(events: list[Event]) -> Iterator[Told]:
    story = Story()
    yield from (told for event in events if (told := story.tell(event)) is not None)


def _model(events: list[Event]) -> str:
    asked = [event.fact for event in events if isinstance(event.fact, ModelAsked)]
    return " ".join(part for part in (asked[-1].provider, asked[-1].model) if part) if asked else ""


def _artifacts(events: list[Event]) -> Iterator[ArtifactRef]:
    seen: set[str] = set()
    for event in events:
        if isinstance(event.fact, CallObserved):
            for artifact in event.fact.observation.artifacts:
                if artifact.id not in seen:
                    seen.add(artifact.id)
                    yield artifact


async def _forks(log: EventLog, run_id: str) -> tuple[str, ...]:
    name = run_id.encode()
    firsts = [decode_event(ends.first) for ends in await log.ends() if name in ends.first.body]
    return tuple(
        first.run_id for first in firsts if isinstance(first.fact, RunStarted) and first.fact.forked_from == run_id
    )


_MAX_TOLD = 40
_MAX_ARTIFACTS = 10


def say_picture(shown: Picture, now: int, log: Path | None) -> None:
    say("run ", short(shown.run_id), ": ", state_text(shown.state), f", {_since(shown, now)}")
    for label, text in _about(shown):
        say(Text(f"  {label + ':':14}"), text)
    rows = Rows()
    if shown.told:
        say("")
    for told in _middle_cut(shown.told):
        rows.told(told)
    for title, lines in _sections(shown, now):
        say("")
        say(title)
        for line in lines:
            say(f"  {line}")
    say("")
    say("next:")
    for command in next_commands(shown):
        say(f"  {with_log(command, log)}")


def next_commands(shown: Picture) -> list[str]:
    """What may be typed now, the most likely first."""
    name = short(shown.run_id)
    asked = [f"interlock approvals show {short(question.action_id)}" for question in shown.questions[:1]]
    match shown.state:
        case StateWord.WAITING:
            return [*asked, f"interlock runs resume {name}", f"interlock runs cancel {name}"]
        case StateWord.RESTING:
            return [f"interlock chat --resume {name}", f"interlock runs resume {name}", f"interlock runs cancel {name}"]
        case StateWord.STOPPED:
            return [f"interlock runs resume {name}", f"interlock runs cancel {name}"]
        case StateWord.RUNNING:
            return [f"interlock runs watch {name}", f"interlock runs cancel {name}"]
        case _:
            return [f"interlock replay {name}", f"interlock runs fork {name}", f"interlock audit verify {name}"]


def _since(shown: Picture, now: int) -> str:
    where = f"in {shown.held_by}, " if shown.held_by else ""
    return f"{where}last event {for_how_long(now - shown.changed_at)} ago"


def _about(shown: Picture) -> Iterator[tuple[str, str]]:
    started, usage = shown.started, shown.usage
    yield "id", shown.run_id
    if started.agent or shown.model:
        yield "agent", ", ".join(part for part in (started.agent, shown.model) if part)
    if started.workspace:
        yield "workspace", started.workspace
    if started.requester:
        yield "for", started.requester
    yield "started", f"{date_and_time(shown.started_at)}, {count(shown.events, 'event')}"
    if started.parent_run_id:
        yield "inside of", f"{short(started.parent_run_id)}, call {started.parent_call_id}"
    if started.forked_from:
        yield "fork of", f"{short(started.forked_from)} at event {started.forked_at}"
    if shown.requests:
        cost = f", cost {usage.cost:.4g}" if usage.cost else ""
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        yield "used", f"{count(shown.requests, 'request')}, {count(shown.tool_calls, 'call')}, {tokens}{cost}"
    if shown.message and shown.state is not StateWord.COMPLETED:
        yield "ended with", first_words(shown.message)
    yield "verification", f"{shown.verification.status}: {shown.verification.message}"
    if shown.conflict:
        yield "conflict", shown.conflict


def _middle_cut(told: tuple[Told, ...]) -> Iterator[Told]:
    half = _MAX_TOLD // 2
    if len(told) <= _MAX_TOLD:
        yield from told
        return
    yield from told[:half]
    yield Told("...", f"{len(told) - _MAX_TOLD:,} more; `interlock runs events` has all", style="dim")
    yield from told[-half:]


def _sections(shown: Picture, now: int) -> Iterator[tuple[str, list[str]]]:
    if shown.questions:
        yield "open questions:", [_question(question, shown, now) for question in shown.questions]
    if shown.inside:
        yield "runs inside its calls:", [f"{short(each.run_id)}  {each.state}  {each.agent}" for each in shown.inside]
    if shown.forks:
        yield "forks:", [short(run_id) for run_id in shown.forks]
    if shown.artifacts:
        more = len(shown.artifacts) - _MAX_ARTIFACTS
        lines = [f"{each.kind:20} {each.size_bytes:>11,} bytes  {each.id}" for each in shown.artifacts[:_MAX_ARTIFACTS]]
        yield "artifacts:", [*lines, f"... {more:,} more"] if more > 0 else lines


def _question(question: Question, shown: Picture, now: int) -> str:
    where = "" if question.run_id == shown.run_id else f" in run {short(question.run_id)}"
    asked = f"asked {for_how_long(now - question.asked_at)} ago" if question.asked_at else "asked"
    ends = f", ends {until(question.expires_at, now)}" if question.expires_at else ""
    return f"{short(question.action_id)}  {question.capability or question.tool_name}{where}, {asked}{ends}"
