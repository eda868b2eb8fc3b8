"""Steps through a recorded run without executing anything.

A `Replay` holds events and nothing else: no registry, no policy, no handler. So it works for tools that no longer
exist, shows the definitions and decisions that were recorded, and has no way to act.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..domain.call import Question
from ..domain.errors import LogCorruptError
from ..domain.event import BatchStarted, CallObserved, CallProposed, Event, LogEntry, decode_event
from ..domain.messages import Message as Said
from ..domain.observation import Observation
from ..domain.rendering import render_for_model
from ..domain.state.ledger import Ledger
from ..history.fold import fold_entries


class ReplayMessage(NamedTuple):
    """The tool message of one call."""

    call_id: str
    text: str


class ReplayMoment(NamedTuple):
    """The state of a run right after one of its events."""

    event: Event
    ledger: Ledger
    #: What the model would have been sent, had it been asked.
    conversation: tuple[Said, ...]
    #: The open questions.
    questions: tuple[Question, ...]


class ReplayStep:
    """One event, and the state of the run right after it."""

    __slots__ = ("_replay", "event")

    def __init__(self, replay: "Replay", event: Event) -> None:
        self._replay = replay
        self.event = event

    @property
    def ledger(self) -> Ledger:
        """A separate ledger: changing it affects no other step."""
        return self._replay.state_at(self.event.seq)


class Replay:
    """A whole run, from its first event on. A damaged log is refused."""

    def __init__(self, entries: Sequence[LogEntry]) -> None:
        if not entries:
            raise LogCorruptError("there is no event to replay")
        self.run_id = entries[0].run_id
        fold_entries(self.run_id, entries)
        self._events = tuple(decode_event(entry) for entry in entries)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ReplayStep]:
        return (ReplayStep(self, event) for event in self._events)

    def state_at(self, seq: int) -> Ledger:
        """Return the state of the run right after event `seq`."""
        if not 0 <= seq < len(self._events):
            raise IndexError(f"{self.run_id} has events 0 to {len(self._events) - 1}, not {seq}")
        ledger = Ledger(run_id=self.run_id)
        for event in self._events[: seq + 1]:
            ledger.apply(event)
        return ledger

    def moment(self, seq: int) -> ReplayMoment:
        """Return everything that can be inspected right after event `seq`."""
        ledger = self.state_at(seq)
        return ReplayMoment(self._events[seq], ledger, tuple(ledger.dialogue.messages), tuple(ledger.open_questions()))

    def observations(self) -> tuple[Observation, ...]:
        """Return the recorded outcomes, in the order in which they were recorded."""
        return tuple(event.fact.observation for event in self._events if isinstance(event.fact, CallObserved))

    def messages(self) -> tuple[ReplayMessage, ...]:
        """Return what the model saw of its calls, in its own order: batch by batch, as it proposed them.

        A call that came again is answered again with its observation. One that reused an id for something else was
        answered with a refusal that belongs to no call; it is not repeated here.
        """
        batch = -1
        digests: dict[str, str] = {}
        proposed: dict[tuple[int, str], None] = {}
        for event in self._events:
            fact = event.fact
            if isinstance(fact, BatchStarted):
                batch = event.seq
            elif isinstance(fact, CallProposed) and digests.setdefault(fact.call_id, fact.digest) == fact.digest:
                proposed.setdefault((batch, fact.call_id))
        observed = {observation.call_id: observation for observation in self.observations()}
        return tuple(
            ReplayMessage(call_id, render_for_model(observed[call_id]))
            for _, call_id in proposed
            if call_id in observed
        )
