"""What is sent, who sends it, and what may come of it."""

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
    #: The same events have the same one, however often they are sent.
    delivery: str
    items: tuple[BatchItem, ...]


class SendSuccess(msgspec.Struct, frozen=True):
    """The receiver has it, as far as its protocol lets it say so."""


class SendDelay(msgspec.Struct, frozen=True):
    """Not now: the way or the receiver does not work. Sending it again may help, however long that takes."""

    problem: str
    retry_after_seconds: float = 0.0


class SendRejection(msgspec.Struct, frozen=True):
    """The receiver is there and does not want these events."""

    problem: str


SendOutcome: TypeAlias = SendSuccess | SendDelay | SendRejection


class EventSender(Protocol):
    """Sends to one destination. It raises nothing for what a receiver or the network does."""

    async def send(self, batch: EventBatch) -> SendOutcome: ...

    async def close(self) -> None: ...
