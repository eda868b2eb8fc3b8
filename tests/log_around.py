"""A log that passes everything on to another one: for tests that change one thing about it."""

import asyncio
from collections.abc import Sequence

from interlock.domain.chain import Entry
from interlock.storage.event_log import Claim, EventLog, Snapshot


class LogAround:
    def __init__(self, inner: EventLog) -> None:
        self._inner = inner
        self.immediate = inner.immediate
        self.run_ids = inner.run_ids
        self.ends = inner.ends
        self.feed = inner.feed
        self.claim = inner.claim
        self.release = inner.release
        self.holders = inner.holders
        self.post = inner.post
        self.notes = inner.notes
        self.take_away = inner.take_away
        self.version = inner.version

    def append(
        self, run_id: str, entries: Sequence[Entry], claim: Claim | None = None
    ) -> "asyncio.Future[None] | None":
        return self._inner.append(run_id, entries, claim)

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        return await self._inner.read(run_id, after_seq, limit)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        await self._inner.save_snapshot(run_id, snapshot)

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        return await self._inner.load_snapshot(run_id)

    async def close(self) -> None:
        await self._inner.close()
