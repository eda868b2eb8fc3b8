"""What an append changes in the row of its run: whether a worker can continue it, and when to look at it.

The row is a hint for workers, and the events decide. It is written with the events, so it cannot miss one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from ...domain.errors import LogUnreadableError
from ...domain.event import (
    SCHEMA_VERSION,
    TERMINAL_EVENTS,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    Event,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    InvocationStarted,
    LogEntry,
    RunPaused,
    RunResumed,
    RunStarted,
    UserMessageReceived,
    decode_event,
)
from ..projection import INDEXED_TYPES, clamp_integer

CAN_CONTINUE, WAITS, OVER = 0, 1, 2


def _types(*facts: Any) -> frozenset[str]:
    return frozenset(str(fact.__struct_config__.tag) for fact in facts)


_KNOWN = _types(*get_args(Fact))
_STARTED, _INVOKED = _types(RunStarted), _types(InvocationStarted)
_ANSWERED = _types(
    UserMessageReceived,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
)
_ASKED = _types(ApprovalRequested, ConsentRequested, InputRequested)
_RESUMED, _PAUSED, _OVER = _types(RunResumed), _types(RunPaused), _types(*TERMINAL_EVENTS)


class _FactHead(msgspec.Struct, gc=False):
    type: str
    action_id: str = ""


class _Head(msgspec.Struct, gc=False):
    seq: int
    run_id: str
    at: int
    fact: _FactHead
    schema: int = 1


_decode_head = msgspec.json.Decoder(_Head).decode


class ScannedEvent:
    """An event of an append: its type is read at once, all of it only where it is needed."""

    __slots__ = ("_event", "_is_decoded", "at", "entry", "is_indexed", "problem", "type")

    def __init__(self, entry: LogEntry) -> None:
        self.entry = entry
        #: Why it cannot be read; known only after `event` was asked for.
        self.problem = ""
        self.type, self.at = "", 0
        #: It changes rows of lists.
        self.is_indexed = True
        self._event: Event | None = None
        self._is_decoded = False
        try:
            head = _decode_head(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if (head.seq, head.run_id) != (entry.seq, entry.run_id) or head.schema > SCHEMA_VERSION:
            return
        self.type, self.at = head.fact.type, clamp_integer(head.at)
        is_known = self.type in _KNOWN
        uses_answer = self.type not in _INVOKED or head.fact.action_id != ""
        self.is_indexed = not is_known or (self.type in INDEXED_TYPES and uses_answer)

    @property
    def event(self) -> Event | None:
        """The event; None when it cannot be decoded: `problem` says why."""
        if not self._is_decoded:
            self._is_decoded = True
            try:
                self._event = decode_event(self.entry)
            except LogUnreadableError as error:
                self.problem = str(error)
        return self._event


class RowChange(NamedTuple):
    """The new state, None where it stays; whether a worker has to look; the seconds of `wake_at`; the parent run; the
    time of the last event.
    """

    state: int | None = None
    is_woken: bool = False
    wake_at: float | None = None
    parent: str | None = None
    updated_at: int | None = None


_UNCHANGED = RowChange()


def find_row_change(events: Sequence[ScannedEvent]) -> RowChange:
    """Return what these events change in the row of their run."""
    change = _UNCHANGED
    updated_at: int | None = None
    for event in events:
        updated_at = event.at or updated_at
        if event.type in _ANSWERED:
            change = change._replace(state=CAN_CONTINUE, is_woken=True)
        elif event.type in _STARTED:
            change = change._replace(state=CAN_CONTINUE, is_woken=True, parent=_read_parent(event))
        elif event.type in _ASKED:
            expires_at = _read_expiry(event)
            if expires_at and (change.wake_at is None or expires_at < change.wake_at):
                change = change._replace(wake_at=expires_at)
        elif event.type in _RESUMED:
            change = change._replace(state=CAN_CONTINUE)
        elif event.type in _PAUSED:
            change = change._replace(state=WAITS)
        elif event.type in _OVER:
            change = change._replace(state=OVER)
    return change._replace(updated_at=updated_at)


def _read_parent(event: ScannedEvent) -> str | None:
    fact = event.event.fact if event.event else None
    return (fact.parent_run_id or None) if isinstance(fact, RunStarted) else None


def _read_expiry(event: ScannedEvent) -> float:
    fact = event.event.fact if event.event else None
    if isinstance(fact, (ApprovalRequested, ConsentRequested, InputRequested)):
        return fact.question.expires_at / 1e9
    return 0.0
