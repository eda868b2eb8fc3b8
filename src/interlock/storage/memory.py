"""The log in memory: for tests, and for runs that need not outlive the process. It belongs to one thread.

"Durable" means here: as long as the object. All leases belong to this process.
"""

from collections.abc import Collection, Sequence

from ..domain.errors import LogError, LogFencedError, LogWriteError
from ..domain.event import LogEntry
from .event_log import EffectClaim, FeedEntry, Lease, QueuedCommand, RunSummary, Snapshot, StoredRun
from .leases import NO_TOKEN, claimed_error, fenced_error, lease_token, this_process
from .memory_budgets import MemoryBudgets
from .polling import poll_for_change


class MemoryLog:
    """Keep events in memory: for tests, and for runs that need not survive the process."""

    immediate = True
    problem = ""

    def __init__(self) -> None:
        self._runs: dict[str, list[LogEntry]] = {}
        #: Events of all runs, in the order of their appends.
        self._feed: list[LogEntry] = []
        self._snapshots: dict[str, Snapshot] = {}
        #: The last token of every run that was ever leased, and those that are in force.
        self._tokens: dict[str, int] = {}
        self._held_tokens: dict[str, int] = {}
        self._commands: dict[str, dict[str, QueuedCommand]] = {}
        self._claims: dict[str, list[EffectClaim]] = {}
        self._claim_count = 0
        self._version = 0
        self._closed = False
        #: What runs use of budgets.
        self.budgets = MemoryBudgets()

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
        """Append entries to a run. Raise `LogFencedError` if they do not continue it."""
        if self._closed:
            raise LogWriteError("the log is closed")
        held = self._held_tokens
        if lease is None:
            if run_id in held:
                self._check_lease(run_id, lease)
        elif lease.run_id != run_id or run_id not in held or held[run_id] != lease.token:
            self._check_lease(run_id, lease)
        try:
            run = self._runs[run_id]
        except KeyError:
            run = []
        seq = run[-1].seq + 1 if run else 0
        for entry in entries:
            if entry.seq != seq or entry.run_id != run_id:
                raise LogFencedError(
                    f"event {entry.seq} of {entry.run_id} does not continue {run_id}, whose next event is {seq}"
                )
            seq += 1
        run += entries
        self._feed += entries
        self._version += 1
        if run:
            self._runs[run_id] = run

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        """Read entries of a run."""
        start = after_seq + 1
        return self._runs.get(run_id, [])[start : None if limit is None else start + limit]

    async def load(self, run_id: str, limit: int | None = None) -> StoredRun:
        """Return the snapshot of a run and the entries from its event on."""
        snapshot = self._snapshots.get(run_id)
        start = 0 if snapshot is None else snapshot.seq
        return StoredRun(snapshot, self._runs.get(run_id, [])[start : None if limit is None else start + limit])

    async def run_ids(self) -> list[str]:
        """List the runs, oldest first."""
        return list(self._runs)

    async def list_runs(self, limit: int | None = None) -> list[RunSummary]:
        """List the first and last entries of runs, newest run first."""
        return [RunSummary(run[0], run[-1]) for run in list(reversed(self._runs.values()))[:limit]]

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        """Read entries of all runs in the order of their appends."""
        end = None if limit is None else after + limit
        return [FeedEntry(position, entry) for position, entry in enumerate(self._feed[after:end], after + 1)]

    async def feed_position(self) -> int:
        """Return the position of the newest event."""
        return len(self._feed)

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        """Acquire the lease of a run. Raise `RunClaimedError` if it is held, unless forced."""
        if run_id in self._held_tokens and not force:
            raise claimed_error(run_id, this_process(), this_process())
        self._begin_change()
        token = self._tokens[run_id] = self._held_tokens[run_id] = self._tokens.get(run_id, NO_TOKEN) + 1
        return Lease(run_id, token)

    async def release(self, lease: Lease) -> bool:
        """Release a lease. Do nothing if it was lost."""
        self._begin_change()
        if self._held_tokens.get(lease.run_id) == lease.token:
            del self._held_tokens[lease.run_id]
        return bool(self._commands.get(lease.run_id))

    async def assign_queue(self, run_id: str, queue: str) -> None:
        """Do nothing: a log of one host has no queues."""

    async def lease_holder(self, run_id: str) -> str:
        """Return the holder of a run; empty when there is none."""
        return str(this_process()) if run_id in self._held_tokens else ""

    async def lease_holders(self) -> dict[str, str]:
        """Return the holder of each held run."""
        return {run_id: str(this_process()) for run_id in self._held_tokens}

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        """Queue a command for a run. Return False if its key is queued already."""
        self._begin_change()
        if run_id not in self._runs:
            raise LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
        commands = self._commands.setdefault(run_id, {})
        is_new = command.key not in commands
        commands.setdefault(command.key, command)
        return is_new

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        """List the commands queued for a run."""
        return list(self._commands.get(run_id, {}).values())

    async def queued_commands_of(self, run_ids: Collection[str]) -> dict[str, list[QueuedCommand]]:
        """List the commands queued for these runs."""
        return {run_id: list(queued.values()) for run_id in run_ids if (queued := self._commands.get(run_id))}

    async def ack(self, run_id: str, key: str) -> None:
        """Remove a queued command."""
        self._begin_change()
        self._commands.get(run_id, {}).pop(key, None)

    async def claim_effect(self, effect: str, claim: EffectClaim, after: int) -> bool:
        """Claim an effect. Return False if another call claimed it after the given number."""
        self._begin_change()
        claims = self._claims.setdefault(effect, [])
        call = (claim.run_id, claim.call_id)
        if any(other.number > after and (other.run_id, other.call_id) != call for other in claims):
            return False
        self._claim_count += 1
        claims.append(EffectClaim(self._claim_count, claim.run_id, claim.call_id, claim.at))
        return True

    async def effect_claims(self, effect: str, limit: int) -> list[EffectClaim]:
        """List the claims of an effect, newest first."""
        return self._claims.get(effect, [])[: -limit - 1 : -1]

    def version(self) -> int:
        """Return a number that changes with every write."""
        return self._version

    async def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Wait for a write."""
        return await poll_for_change(self.version, seen, seconds)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Save the snapshot of a run, replacing an earlier one."""
        self._begin_change()
        self._snapshots[run_id] = snapshot

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Load the last snapshot of a run, or None."""
        return self._snapshots.get(run_id)

    async def reopen(self) -> None:
        """Do nothing: an append never fails."""

    async def close(self) -> None:
        """Refuse further writes."""
        self._closed = True

    def _check_lease(self, run_id: str, lease: Lease | None) -> None:
        token, held = lease_token(run_id, lease), self._held_tokens.get(run_id, NO_TOKEN)
        if token != held:
            raise fenced_error(run_id, token, this_process() if held else None)

    def _begin_change(self) -> None:
        if self._closed:
            raise LogWriteError("the log is closed")
        self._version += 1
