"""The event log: append-only, per run, dense `seq`. What is not in it did not happen.

Guarantees, tested for every implementation by `EventLogConformance` of `interlock.testing.conformance`:

1. `append` is done only when the entries are durable; all of one append are written, or none.
2. Entries of a run have `seq` 0, 1, 2, ...; an append that does not continue the run raises `LogFencedError` and
   writes nothing.
3. After any other failed append the log refuses further appends (`LogWriteError`): "raised" does not mean "not
   written", so no caller may continue as if it was not. Reopening decides; until then `problem` says why. An append
   that was refused before anything was written, because another process writes, raises `LogError` and changes nothing.
4. `read` returns exactly the bytes that were appended, in order.
5. A snapshot is a hint: losing it loses nothing.
6. A run has at most one lease. Once it was acquired, only the newest lease can append: a process that lost it, or never
   had it, gets `LogFencedError`, so it cannot start an effect. A lease whose process is gone can be taken over: at once
   where processes can be seen, else when it was not renewed for its time.
7. `feed` has every event of every run once, in the order of their appends, and never a new one before an old one.
   Positions grow, and may have gaps.
8. A command is for the lease holder: one per key, the first one counts, and it stays until it is acknowledged.
9. Claims of effects are shared by all runs: a claim is stored only if its caller knows every earlier claim of other
   calls, so of several callers that know the same claims exactly one succeeds.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from ..domain.event import LogEntry


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a run after `seq`, and the chain's hash there, to start folding from."""

    seq: int
    hash: bytes
    state: bytes


class Lease(msgspec.Struct, frozen=True):
    """The exclusive right to drive a run. The token grows with every acquisition."""

    run_id: str
    token: int


class QueuedCommand(msgspec.Struct, frozen=True):
    """A command for a run from a process without its lease: an answer, or a cancellation."""

    key: str
    body: bytes


class EffectClaim(msgspec.Struct, frozen=True):
    """A call that is about to have an effect. Whether it had it is in the log of its run."""

    #: Grows with every claim of the log; 0: not stored yet.
    number: int
    run_id: str
    call_id: str
    #: When, in nanoseconds since 1970.
    at: int


class StoredRun(msgspec.Struct, frozen=True):
    """The snapshot of a run, if there is one, and its entries from the snapshot's own event on; without one, all."""

    snapshot: Snapshot | None
    entries: list[LogEntry]


class RunSummary(msgspec.Struct, frozen=True):
    """The first and the last event of a run."""

    first: LogEntry
    last: LogEntry


class FeedEntry(msgspec.Struct, frozen=True):
    """An event, and its position among the events of all runs."""

    position: int
    entry: LogEntry


class ConditionalAppend(Protocol):
    """What a log may offer, too: an answer is first, and recorded, in one transaction."""

    def append_unless_queued(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None, key: str
    ) -> "asyncio.Future[bool]":
        """Append as `EventLog.append` does, unless a command is queued for the run under this key. The result is False
        when one is: then nothing was written.
        """
        ...


class LeasingAppend(Protocol):
    """What a log may offer, too: the lease of a run begins with its first append, or ends with one, in one
    transaction. `LeasingAppendConformance` tests it.
    """

    def append_and_acquire(self, run_id: str, entries: Sequence[LogEntry]) -> "asyncio.Future[Lease]":
        """Append the first entries of a run, and acquire its lease. `LogFencedError`, and nothing is written, when the
        run has entries, or a lease.
        """
        ...

    def append_and_release(self, run_id: str, entries: Sequence[LogEntry], lease: Lease) -> "asyncio.Future[bool]":
        """Append entries that end or pause a run, and release its lease. The result is that of `release`. When it
        fails, the lease is still to be released.
        """
        ...


class EventLog(Protocol):
    """The append-only log of events, with leases, queued commands and snapshots."""

    @property
    def immediate(self) -> bool:
        """True when an append is durable as it returns. Then there is nothing to gain from batching."""
        ...

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        """Make the entries durable. Return None when they already are, else a future that is done when they are.

        They must continue the run, else `LogFencedError` is raised or set on the future. Cancelling the wait does not
        undo the append.
        """
        ...

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        """Return the entries after `after_seq`, in order; an unknown run has none. Fewer than `limit`: there are no
        more.
        """
        ...

    async def load(self, run_id: str, limit: int | None = None) -> StoredRun:
        """Return the snapshot of a run and up to `limit` entries from its event on. Costs as much as one `read`."""
        ...

    async def run_ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        ...

    async def list_runs(self, limit: int | None = None) -> list[RunSummary]:
        """Return summaries of the most recently started runs, newest first."""
        ...

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        """Return the events of all runs after that position, in the order in which they became durable. Positions begin
        at 1 and grow; later events always have a higher position.
        """
        ...

    async def feed_position(self) -> int:
        """Return the position of the newest event; 0 when there is none."""
        ...

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        """Acquire the lease of a run. Raise `RunClaimedError`, naming the process, when a living one has it, including
        this one, unless `force`.
        """
        ...

    async def release(self, lease: Lease) -> bool:
        """Release the lease; nothing when it was lost. Afterwards any process may append again. Return True if commands
        are queued for the run: they are for the next holder.
        """
        ...

    async def assign_queue(self, run_id: str, queue: str) -> None:
        """Hand a run that is started next to the workers that serve this queue. A log of one host has no queues: its
        runs are for the process that serves them.
        """
        ...

    async def lease_holder(self, run_id: str) -> str:
        """Return a description of the living process that has the lease of a run; empty when there is none."""
        ...

    async def lease_holders(self) -> dict[str, str]:
        """Return the leased runs, each with a description of the living process that owns it. Takes no lease."""
        ...

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        """Queue a command. Return False when there is one under the same key: that one counts."""
        ...

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        """Return the queued commands of a run, in the order in which they were queued."""
        ...

    async def queued_commands_of(self, run_ids: Collection[str]) -> dict[str, list[QueuedCommand]]:
        """Return the queued commands of these runs, by run, in one query; nothing for a run without one."""
        ...

    async def ack(self, run_id: str, key: str) -> None: ...

    async def claim_effect(self, effect: str, claim: EffectClaim, after: int) -> bool:
        """Store the claim of a call on an effect. Return False, and store nothing, when another call claimed the effect
        after the claim with the number `after`.
        """
        ...

    async def effect_claims(self, effect: str, limit: int) -> list[EffectClaim]:
        """Return the newest claims on an effect, newest first."""
        ...

    def version(self) -> int:
        """Return a number that changes with every write: of this object at once, of others soon. Never waits."""
        ...

    async def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Wait up to `seconds` for a version other than `seen`. Return True if there is one."""
        ...

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None: ...

    async def load_snapshot(self, run_id: str) -> Snapshot | None: ...

    @property
    def problem(self) -> str:
        """Why nothing can be written now; empty when writes work. Cheap, and never waits."""
        ...

    async def reopen(self) -> None:
        """Open the storage again after a failed append, and check that it can be written. Do nothing when no append
        failed. Raise `LogError` when it still cannot be written. Leases of before are lost: runs are opened again.
        """
        ...

    async def close(self) -> None:
        """Finish pending appends and release files and threads. Closing twice is fine."""
        ...
