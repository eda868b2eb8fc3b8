"""All runs of an agent are ended at once: for the moment in which somebody sees that it does what it must not.

Those that run come first, all of them at the same time; then those that wait, a few at a time. Runs that are begun
meanwhile are found by looking again. One that does not end in time goes on ending, and is named.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ....domain.errors import InterlockError
from ....domain.state.lifecycle import RunState
from ..index.index import Index
from ..index.rows import RUNNING, UNFINISHED, RunQuery, RunRow

#: How long is waited for all of them.
STOP_SECONDS = 20.0
_AT_ONCE = 25
_PAGE = 1_000
_MAX_LOOKS = 5


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    #: How many runs were ended by it.
    cancelled: int
    #: Those that were not over when it was no longer waited for.
    unfinished: tuple[str, ...]


class Stopping:
    """Of one agent, once."""

    def __init__(self, index: Index, agent: str, end: Callable[[RunRow], Awaitable[RunRow]]) -> None:
        """`end`: ends one run and says how it is afterwards."""
        self._index = index
        self._agent = agent
        self._end = end
        self._ending: dict[str, asyncio.Task[RunRow | None]] = {}

    async def run(self) -> Stopped:
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        for _ in range(_MAX_LOOKS):
            if not (fresh := [row for row in await self._unfinished() if row.run_id not in self._ending]):
                break
            await self._all((row for row in fresh if row.status in RUNNING), len(fresh), until)
            await self._all((row for row in fresh if row.status not in RUNNING), _AT_ONCE, until)
        found = [task.result() for task in self._ending.values() if task.done()]
        return Stopped(
            agent=self._agent,
            cancelled=sum(row is not None and row.state is RunState.CANCELLED for row in found),
            unfinished=tuple(row.run_id for row in await self._unfinished()),
        )

    async def _all(self, rows: Iterable[RunRow], at_once: int, until: float) -> None:
        loop, waiting = asyncio.get_running_loop(), list(rows)
        while waiting and (left := until - loop.time()) > 0:
            now, waiting = waiting[:at_once], waiting[at_once:]
            tasks = [asyncio.create_task(self._one(row)) for row in now]
            self._ending |= {row.run_id: task for row, task in zip(now, tasks, strict=True)}
            await asyncio.wait(tasks, timeout=left)

    async def _one(self, row: RunRow) -> RunRow | None:
        try:
            return await self._end(row)
        except InterlockError:  # it came to its end in another way
            return None

    async def _unfinished(self) -> list[RunRow]:
        found, cursor = list[RunRow](), ""
        while True:
            query = RunQuery(statuses=UNFINISHED, agent=self._agent, inside=True, limit=_PAGE, cursor=cursor)
            page = await self._index.runs(query)
            found += page.rows
            cursor = page.next_cursor
            if not cursor:
                return found
