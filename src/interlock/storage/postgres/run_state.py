"""What an append changes in the row of its run: whether a worker can continue it, and when to look at it.

The row is a hint for workers, and the events decide. It is written with the events, so it cannot miss one.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...domain.errors import LogUnreadableError
from ...domain.event import (
    TERMINAL_EVENTS,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    InputProvided,
    InputRefused,
    InputRequested,
    LogEntry,
    RunPaused,
    RunResumed,
    RunStarted,
    UserMessageReceived,
    decode_event,
)

CAN_CONTINUE, WAITS, OVER = 0, 1, 2

_TAG = b'"fact":{"type":"'


def _tags(*facts: Any) -> frozenset[bytes]:
    return frozenset(fact.__struct_config__.tag.encode() for fact in facts)


_ANSWERED = _tags(
    UserMessageReceived,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
)
_STARTED = _tags(RunStarted)
_ASKED = _tags(ApprovalRequested, ConsentRequested, InputRequested)
_RESUMED, _PAUSED, _OVER = _tags(RunResumed), _tags(RunPaused), _tags(*TERMINAL_EVENTS)


class RowChange(NamedTuple):
    """The new state, None where it stays; whether a worker has to look; the seconds of `wake_at`; the parent run."""

    state: int | None = None
    is_woken: bool = False
    wake_at: float | None = None
    parent: str | None = None


_UNCHANGED = RowChange()


def find_row_change(entries: Sequence[LogEntry]) -> RowChange:
    """Return what these entries change in the row of their run."""
    change = _UNCHANGED
    for entry in entries:
        tag = _read_tag(entry.body)
        if tag in _ANSWERED:
            change = change._replace(state=CAN_CONTINUE, is_woken=True)
        elif tag in _STARTED:
            change = change._replace(state=CAN_CONTINUE, is_woken=True, parent=_read_parent(entry))
        elif tag in _ASKED:
            expires_at = _read_expiry(entry)
            if expires_at and (change.wake_at is None or expires_at < change.wake_at):
                change = change._replace(wake_at=expires_at)
        elif tag in _RESUMED:
            change = change._replace(state=CAN_CONTINUE)
        elif tag in _PAUSED:
            change = change._replace(state=WAITS)
        elif tag in _OVER:
            change = change._replace(state=OVER)
    return change


def _read_tag(body: bytes) -> bytes:
    """Return the type of the event. Nothing before it can contain the marker: quotes in texts are escaped."""
    start = body.find(_TAG)
    if start < 0:
        return b""
    start += len(_TAG)
    return body[start : body.find(b'"', start)]


def _read_parent(entry: LogEntry) -> str | None:
    with suppress(LogUnreadableError):  # an event that cannot be read is not the problem of the append
        fact = decode_event(entry).fact
        return (fact.parent_run_id or None) if isinstance(fact, RunStarted) else None
    return None


def _read_expiry(entry: LogEntry) -> float:
    with suppress(LogUnreadableError):
        fact = decode_event(entry).fact
        if isinstance(fact, (ApprovalRequested, ConsentRequested, InputRequested)):
            return fact.question.expires_at / 1e9
    return 0.0
