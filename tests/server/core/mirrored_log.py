"""A log in memory whose index is in Postgres: what is appended is copied there before the index is read."""

from collections.abc import Sequence
from typing import Any

from interlock import MemoryLog
from interlock.domain.event import Event
from interlock.storage.event_log import FeedEntry
from interlock.storage.indexed_log import RecentEvent
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.rollups import Rollups, RunFacts
from tests.storage.runs import append


class MirroredLog(MemoryLog):
    """The numbers of a page are those of Postgres; everything else is what the log in memory has."""

    def __init__(self, stored: PostgresLog) -> None:
        super().__init__()
        self.index = MirroredIndex(self, stored)


class MirroredIndex:
    def __init__(self, source: MemoryLog, stored: PostgresLog) -> None:
        self._source = source
        self._stored = stored
        self._position = 0

    async def copy(self) -> None:
        for group in _by_run(await self._source.feed(self._position)):
            self._position = group[-1].position
            await append(self._stored, group[0].entry.run_id, [placed.entry for placed in group])

    async def fetch(self, sql: str, parameters: Sequence[str | int]) -> list[Any]:
        await self.copy()
        return await self._stored.index.fetch(sql, parameters)

    async def list_recent(
        self, before: int, limit: int, where: str, parameters: Sequence[str | int]
    ) -> list[RecentEvent]:
        await self.copy()
        return await self._stored.index.list_recent(before, limit, where, parameters)

    async def mark_damaged(self, run_id: str, message: str, *, is_closed: bool) -> None:
        await self.copy()
        await self._stored.index.mark_damaged(run_id, message, is_closed=is_closed)

    async def reindex(self) -> int:
        return await self._stored.index.reindex()

    async def read_rollup_position(self) -> int:
        return await self._stored.index.read_rollup_position()

    async def find_run_facts(self, events: Sequence[Event]) -> dict[str, RunFacts]:
        await self.copy()
        return await self._stored.index.find_run_facts(events)

    async def add_rollups(self, after: int, until: int, rollups: Rollups) -> bool:
        return await self._stored.index.add_rollups(after, until, rollups)


def _by_run(feed: Sequence[FeedEntry]) -> list[list[FeedEntry]]:
    """Events that follow each other in one run: one append."""
    groups: list[list[FeedEntry]] = []
    for placed in feed:
        if groups and groups[-1][-1].entry.run_id == placed.entry.run_id:
            groups[-1].append(placed)
        else:
            groups.append([placed])
    return groups
