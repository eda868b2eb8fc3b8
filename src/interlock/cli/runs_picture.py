"""What there is to know about one run, gathered from the log."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..domain.call import Question
from ..domain.chain import decode_event
from ..domain.conversation import Usage
from ..domain.event import CallObserved, Event, ModelAsked, RunStarted
from ..domain.ledger import Ledger
from ..domain.lifecycle import RUN_TRANSITIONS, ActionState
from ..domain.output import ArtifactRef
from ..domain.verification import Verification
from ..history.fold import fold, load
from ..log.interface import EventLog
from .runs_list import pending, state_word
from .runs_log import is_inside
from .runs_story import Story, Told
from .runs_words import StateWord


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
    questions = [question for each in (ledger, *within) for question in _open(each)]
    first = events[0].fact
    return Picture(
        run_id=run_id,
        state=state_word(ledger.state, len(questions), held=run_id in held),
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


def _open(ledger: Ledger) -> list[Question]:
    if not RUN_TRANSITIONS[ledger.state]:
        return []
    return [action.question for action in ledger.actions.values() if action.state is ActionState.PENDING]


def _word(ledger: Ledger, held: Mapping[str, str]) -> StateWord:
    return state_word(ledger.state, pending(ledger), held=ledger.run_id in held)


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
