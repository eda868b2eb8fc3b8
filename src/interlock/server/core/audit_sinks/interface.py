"""Interface of event senders: batches, and the outcomes of sending them."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from ....domain.event import Event, LogEntry

#: An event in the schema of its destination: bytes without a line break at the end.
#: The event as it is stored and as it is read, and the agent whose run it is of.
EventRenderer: TypeAlias = Callable[[LogEntry, Event, str], bytes]


class BatchItem(msgspec.Struct, frozen=True):
    """One event as it is sent: one line."""

    position: int
    run_id: str
    seq: int
    type: str
    #: When it happened, in nanoseconds since 1970.
    at: int
    line: bytes


class EventBatch(msgspec.Struct, frozen=True):
    """Events that are sent together."""

    #: The same events have the same one, however often they are sent.
    delivery: str
    items: tuple[BatchItem, ...]


class SendSuccess(msgspec.Struct, frozen=True):
    """The receiver accepted the batch, as far as its protocol confirms it."""


class SendDelay(msgspec.Struct, frozen=True):
    """Temporary failure of the network or the receiver. Sending again may help."""

    problem: str
    retry_after_seconds: float = 0.0


class SendRejection(msgspec.Struct, frozen=True):
    """The receiver answered and rejected these events."""

    problem: str


SendOutcome: TypeAlias = SendSuccess | SendDelay | SendRejection


class EventSender(Protocol):
    """Sends to one destination. Never raises for failures of the receiver or the network."""

    async def send(self, batch: EventBatch) -> SendOutcome: ...

    async def close(self) -> None: ...
