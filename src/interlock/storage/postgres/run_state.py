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
    CallObserved,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    ContextCompacted,
    Event,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    InvocationStarted,
    LogEntry,
    ModelResponded,
    RunPaused,
    RunResumed,
    RunStarted,
    UserMessageReceived,
    decode_event,
)
from ...domain.state.ledger import USAGE_FACT_KEY
from ..projection import INDEXED_TYPES, clamp_integer

CAN_CONTINUE, WAITS, OVER = 0, 1, 2


def _types(*facts: Any) -> frozenset[str]:
    return frozenset(str(fact.__struct_config__.tag) for fact in facts)


#: Events that change no row of a list.
_UNLISTED = _types(*get_args(Fact)) - INDEXED_TYPES
_STARTED, _INVOKED = _types(RunStarted), _types(InvocationStarted)
#: Events that change rows only where they have this key.
_KEYED = {
    **dict.fromkeys(_types(CallObserved), USAGE_FACT_KEY.encode()),
    **dict.fromkeys(_types(ModelResponded, ContextCompacted), b'"usage":{"'),
}
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
_CHANGING = _STARTED | _ANSWERED | _ASKED | _RESUMED | _PAUSED | _OVER


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
_UNREADABLE = _Head(seq=-1, run_id="", at=0, fact=_FactHead(type=""))


class ScannedEvent:
    """An event of an append: its type is read at once, all of it only where it is needed."""

    __slots__ = ("_event", "_is_decoded", "at", "entry", "is_indexed", "problem", "type")

    def __init__(self, entry: LogEntry) -> None:
        self.entry = entry
        #: Why it cannot be read; known only after `event` was asked for.
        self.problem = ""
        self._is_decoded = False
        try:
            head = _decode_head(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            head = _UNREADABLE
        if head.seq != entry.seq or head.run_id != entry.run_id or head.schema > SCHEMA_VERSION:
            head = _UNREADABLE
        self.at = clamp_integer(head.at)
        self.type = kind = head.fact.type
        #: It changes rows of lists.
        self.is_indexed = (
            kind not in _UNLISTED
            and (kind not in _INVOKED or head.fact.action_id != "")
            and (kind not in _KEYED or _KEYED[kind] in entry.body)
        )

    @property
    def event(self) -> Event | None:
        """The event; None when it cannot be decoded: `problem` says why."""
        if not self._is_decoded:
            self._is_decoded = True
            self._event = None
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


def find_row_change(events: Sequence[ScannedEvent]) -> RowChange:
    """Return what these events change in the row of their run."""
    state: int | None = None
    parent: str | None = None
    wake_at: float | None = None
    updated_at: int | None = None
    is_woken = False
    for event in events:
        kind = event.type
        updated_at = event.at or updated_at
        if kind not in _CHANGING:
            continue
        if kind in _STARTED:
            parent = _read_parent(event)
        if kind in _STARTED or kind in _ANSWERED:
            state, is_woken = CAN_CONTINUE, True
        elif kind in _ASKED:
            expires_at = _read_expiry(event)
            if expires_at and (wake_at is None or expires_at < wake_at):
                wake_at = expires_at
        else:
            state = CAN_CONTINUE if kind in _RESUMED else WAITS if kind in _PAUSED else OVER
    return RowChange(state, is_woken, wake_at, parent, updated_at)


def _read_parent(event: ScannedEvent) -> str | None:
    fact = event.event.fact if event.event else None
    return (fact.parent_run_id or None) if isinstance(fact, RunStarted) else None


def _read_expiry(event: ScannedEvent) -> float:
    fact = event.event.fact if event.event else None
    if isinstance(fact, (ApprovalRequested, ConsentRequested, InputRequested)):
        return fact.question.expires_at / 1e9
    return 0.0
