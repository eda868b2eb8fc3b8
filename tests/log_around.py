"""A log that passes everything on to another one: for tests that change one thing about it."""

import asyncio
from collections.abc import Sequence

from interlock.domain.event import LogEntry
from interlock.storage.event_log import EventLog, Lease, Snapshot, StoredRun


class LogAround:
    def __init__(self, inner: EventLog) -> None:
        self._inner = inner
        self.immediate = inner.immediate
        self.run_ids = inner.run_ids
        self.list_runs = inner.list_runs
        self.feed = inner.feed
        self.feed_position = inner.feed_position
        self.acquire = inner.acquire
        self.release = inner.release
        self.assign_queue = inner.assign_queue
        self.lease_holder = inner.lease_holder
        self.lease_holders = inner.lease_holders
        self.enqueue = inner.enqueue
        self.queued_commands = inner.queued_commands
        self.queued_commands_of = inner.queued_commands_of
        self.ack = inner.ack
        self.claim_effect = inner.claim_effect
        self.effect_claims = inner.effect_claims
        self.version = inner.version
        self.wait_for_change = inner.wait_for_change
        self.reopen = inner.reopen

    @property
    def problem(self) -> str:
        return self._inner.problem

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        return self._inner.append(run_id, entries, lease)

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        return await self._inner.read(run_id, after_seq, limit)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        await self._inner.save_snapshot(run_id, snapshot)

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        return await self._inner.load_snapshot(run_id)

    async def load(self, run_id: str, limit: int | None = None) -> StoredRun:
        snapshot = await self.load_snapshot(run_id)
        return StoredRun(snapshot, await self.read(run_id, -1 if snapshot is None else snapshot.seq - 1, limit))

    async def close(self) -> None:
        await self._inner.close()
