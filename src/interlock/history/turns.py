"""The turns of a run, for people who read it: messages, answers of the model, calls, and how it ended.

A turn begins with a message of a user, with a request to the model, or with a batch of calls that another program made.
Turns are built from consecutive events, so a part of a long run costs what that part costs. Calls are read by
`call_view`, as everywhere.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ..domain import event as facts
from ..domain.event import TERMINAL_EVENTS, Event, Fact
from ..domain.messages import Usage
from ..domain.state.ledger import ANSWER_TRIGGERS
from .call_view import CallView, build_call_views

#: Events that are shown by their title and detail.
_NOTES = (
    facts.ModelFailed,
    facts.ContextTrimmed,
    facts.ContextCompacted,
    facts.FinalAnswerRejected,
    facts.ClaimContradicted,
    facts.ApprovalVoided,
    facts.WarningRaised,
    facts.McpServerLost,
    facts.McpToolsChanged,
)
#: Events about a call that are shown by themselves where its proposal is not among the events.
_NOTES_OF_CALLS = (facts.CallObserved, *ANSWER_TRIGGERS)


class UserEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a user."""

    seq: int
    at: int
    by: str
    text: str
    part_count: int = 0


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the model, and its answer."""

    #: Of the request; of the answer where the request is not among the events.
    seq: int
    started_at: int
    agent: str = ""
    model: str = ""
    is_summary: bool = False
    #: 0: there is no answer yet.
    ended_at: int = 0
    answered_seq: int = -1
    text: str = ""
    call_count: int = 0
    usage: Usage = Usage()
    #: Why there was no usable answer; empty: there was, or there is none yet.
    problem: str = ""


class CallEntry(msgspec.Struct, frozen=True):
    """A call, at the place where the model proposed it."""

    view: CallView


class NoteEntry(msgspec.Struct, frozen=True):
    """Another event that readers should know of."""

    event: Event


class EndEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the run."""

    event: Event
    #: Empty where it repeats the last answer of the model.
    message: str


Entry = UserEntry | ModelEntry | CallEntry | NoteEntry | EndEntry


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: its first event, the last one about it, and what happened."""

    seq: int
    last_seq: int
    entries: tuple[Entry, ...]


def begins_turn(before: Fact | None, fact: Fact) -> bool:
    """Return whether a turn begins with an event. `before`: the event before it; None where that is not known."""
    if isinstance(fact, facts.UserMessageReceived | facts.ModelRequested):
        return True
    return isinstance(fact, facts.BatchStarted) and before is not None and not isinstance(before, facts.ModelResponded)


def split_turns(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Split consecutive events into those of each turn. Events before the first one are a part, too."""
    starts = [at for at in range(1, len(events)) if begins_turn(events[at - 1].fact, events[at].fact)]
    return [events[start:end] for start, end in zip([0, *starts], [*starts, len(events)], strict=True) if start < end]


def build_turns(events: Sequence[Event]) -> tuple[Turn, ...]:
    """Build the turns of consecutive events. Turns in which nothing is to be shown are left out."""
    calls = build_call_views(events)
    last_seqs = _find_last_seqs(events)
    builder = _TurnBuilder(calls)
    turns: list[Turn] = []
    for part in split_turns(events):
        entries = tuple(builder.build(part))
        if entries:
            ids = [entry.view.call_id for entry in entries if isinstance(entry, CallEntry)]
            last_seq = max([part[-1].seq, *(last_seqs[call_id] for call_id in ids)])
            turns.append(Turn(seq=part[0].seq, last_seq=last_seq, entries=entries))
    return tuple(turns)


def _find_last_seqs(events: Sequence[Event]) -> dict[str, int]:
    """Return the last event about each call."""
    found: dict[str, int] = {}
    for event in events:
        fact = event.fact
        call_id = fact.observation.call_id if isinstance(fact, facts.CallObserved) else getattr(fact, "call_id", "")
        found[call_id] = event.seq
    return found


class _TurnBuilder:
    """Builds the entries of one turn after the other."""

    def __init__(self, calls: dict[str, CallView]) -> None:
        self._calls = calls
        self._last_text = ""

    def build(self, events: Sequence[Event]) -> Iterator[Entry]:
        asked: ModelEntry | None = None
        for event in events:
            fact = event.fact
            match fact:
                case facts.UserMessageReceived():
                    count = len(fact.parts)
                    yield UserEntry(seq=event.seq, at=event.at, by=fact.by, text=fact.text, part_count=count)
                case facts.ModelRequested():
                    if asked is not None:
                        yield asked
                    asked = _start_model(event, fact)
                case facts.ModelResponded() | facts.ModelFailed() | facts.ContextCompacted() if (
                    asked is not None or isinstance(fact, facts.ModelResponded)
                ):
                    yield self._end_model(event, asked)
                    asked = None
                case facts.CallProposed():
                    view = self._calls[fact.call_id]
                    if view.proposed_seq == event.seq:
                        yield CallEntry(view)
                case _:
                    yield from self._build_note(event)
        if asked is not None:
            yield asked

    def _end_model(self, event: Event, asked: ModelEntry | None) -> ModelEntry:
        fact = event.fact
        if asked is None:
            duration = fact.duration_ms if isinstance(fact, facts.ModelResponded) else 0.0
            asked = ModelEntry(seq=event.seq, started_at=event.at - int(duration * 1_000_000))
        ended = msgspec.structs.replace(asked, ended_at=event.at, answered_seq=event.seq)
        match fact:
            case facts.ModelResponded():
                self._last_text = fact.text
                return msgspec.structs.replace(ended, text=fact.text, call_count=fact.call_count, usage=fact.usage)
            case facts.ContextCompacted():
                return msgspec.structs.replace(ended, text=fact.summary, is_summary=True, usage=fact.usage)
            case facts.ModelFailed():
                return msgspec.structs.replace(ended, problem=fact.message or "The model gave no usable answer.")
            case _:
                return ended

    def _build_note(self, event: Event) -> Iterator[Entry]:
        fact = event.fact
        if isinstance(fact, TERMINAL_EVENTS):
            message = "" if fact.message.strip() == self._last_text.strip() else fact.message
            yield EndEntry(event=event, message=message)
        elif self._is_note(fact):
            yield NoteEntry(event)

    def _is_note(self, fact: Fact) -> bool:
        if isinstance(fact, facts.CallObserved):
            return fact.observation.call_id not in self._calls
        if isinstance(fact, (*_NOTES, *_NOTES_OF_CALLS)):
            return getattr(fact, "call_id", "") not in self._calls
        return isinstance(fact, facts.RunStarted) and bool(fact.forked_from)


def _start_model(event: Event, fact: facts.ModelRequested) -> ModelEntry:
    return ModelEntry(
        seq=event.seq,
        started_at=event.at,
        agent=fact.agent,
        model=fact.model,
        is_summary=fact.purpose == "summary",
    )
