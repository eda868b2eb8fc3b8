"""The event log: append-only, per run, dense `seq`. What is not in it did not happen.

Promises, proved for every implementation by `tests/log/conformance.py`:

1. `append` is done only when the entries are durable; all of one append are written, or none.
2. Entries of a run have `seq` 0, 1, 2, ...; an append that does not continue the run raises `LogFencedError` and
   writes nothing.
3. After any other failed append the log refuses further appends (`LogWriteError`): "raised" does not mean "not
   written", so nobody may go on as if nothing had been. Reopening decides.
4. `read` returns exactly the bytes that were appended, in order.
5. A snapshot is a hint: losing it loses nothing.
6. A run has at most one claim. Once it was claimed, only the newest claim can append: whoever lost it, or never had
   it, gets `LogFencedError`, so it cannot start an effect. A claim whose process is gone can be taken over at once.
7. `feed` has every event of every run once, in the order of their appends, and never a new one before an old one.
8. A note is for whoever has the claim: one per key, the first one stands, and it stays until it is taken away.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..domain.event import LogEntry


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a run after `seq`, and the chain's hash there, to start folding from."""

    seq: int
    hash: bytes
    state: bytes


class Lease(msgspec.Struct, frozen=True):
    """The right to move a run on. The token grows with every claim of the run."""

    run_id: str
    token: int


class QueuedCommand(msgspec.Struct, frozen=True):
    """Something that was said about a run by somebody who has no claim to it: an answer, a wish to stop it."""

    key: str
    body: bytes


class RunSummary(msgspec.Struct, frozen=True):
    """The first and the last event of a run."""

    first: LogEntry
    last: LogEntry


class FeedEntry(msgspec.Struct, frozen=True):
    """An event, and its place among the events of all runs."""

    position: int
    entry: LogEntry


class EventLog(Protocol):
    @property
    def immediate(self) -> bool:
        """Is an append durable when it returns? Then there is nothing to gain from gathering them."""
        ...

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        """Make the entries durable: None when they already are, else a future that is done when they are.

        They continue the run, or `LogFencedError`: raised, or set on the future. Giving up the wait does not take the
        append back.
        """
        ...

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        """The entries after `after_seq`, in order; an unknown run has none."""
        ...

    async def run_ids(self) -> list[str]:
        """Every run, oldest first."""
        ...

    async def list_runs(self, limit: int | None = None) -> list[RunSummary]:
        """The runs that were begun last, newest first: what is needed to list them."""
        ...

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        """The events of all runs after that position, in the order in which they became durable. Positions begin at 1
        and grow; whoever has read up to one finds everything that is written later after it."""
        ...

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        """Take the run over. `RunClaimedError`, naming the process, when one that is alive has it, be it this very one,
        unless `force`."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back; nothing when it was lost. Afterwards anybody may append again."""
        ...

    async def lease_holders(self) -> dict[str, str]:
        """The runs that a living process has, and that process in words. Asking takes no run from anybody."""
        ...

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        """Leave a note. False when there is one under the same key: that one stands."""
        ...

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        """In the order in which they were left."""
        ...

    async def ack(self, run_id: str, key: str) -> None: ...

    def version(self) -> int:
        """Changes whenever anybody wrote, in any process. Cheap enough to look every few milliseconds."""
        ...

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None: ...

    async def load_snapshot(self, run_id: str) -> Snapshot | None: ...

    async def close(self) -> None:
        """Finish what was handed in and release files and threads. Closing twice is fine."""
        ...
