"""Stops all runs of an agent, or of all agents, at once: the emergency stop.

Active runs are cancelled first, all at the same time; then waiting ones, a few at a time. Runs that start meanwhile are
found by checking again. One that does not end in time keeps ending, and is named.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ....domain.errors import InterlockError
from ....domain.state.lifecycle import RunState
from ..index.rows import RUNNING_STATUSES, UNFINISHED_STATUSES, RunQuery, RunRow
from ..index.run_index import RunIndex

#: How long is waited for all of them.
STOP_SECONDS = 20.0
_MAX_CONCURRENT_STOPS = 25
_PAGE_SIZE = 1_000
_MAX_ROUNDS = 5


class AgentStopResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of stopping an agent."""

    #: Empty: all agents.
    agent: str
    #: How many runs were ended by it.
    cancelled: int
    #: Those that were not over when it was no longer waited for.
    unfinished: tuple[str, ...]


class AgentStop:
    """One stop of one agent."""

    def __init__(self, index: RunIndex, agent: str, cancel_run: Callable[[RunRow], Awaitable[RunRow]]) -> None:
        """Prepare the stop of an agent; an empty name is all of them. `cancel_run` cancels one run and returns its
        row.
        """
        self._index = index
        self._agent = agent
        self._cancel_run = cancel_run
        self._cancel_tasks: dict[str, asyncio.Task[RunRow | None]] = {}
        self._deadline = 0.0

    async def cancel_all(self) -> AgentStopResult:
        """Cancel all unfinished runs of the agent, active ones first."""
        self._deadline = deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        for _ in range(_MAX_ROUNDS):
            if not (new_rows := [row for row in await self._list_unfinished() if row.run_id not in self._cancel_tasks]):
                break
            await self._cancel_in_batches(
                (row for row in new_rows if row.status in RUNNING_STATUSES), len(new_rows), deadline
            )
            await self._cancel_in_batches(
                (row for row in new_rows if row.status not in RUNNING_STATUSES), _MAX_CONCURRENT_STOPS, deadline
            )
        found = [task.result() for task in self._cancel_tasks.values() if task.done()]
        return AgentStopResult(
            agent=self._agent,
            cancelled=sum(row is not None and row.state is RunState.CANCELLED for row in found),
            unfinished=tuple(row.run_id for row in await self._list_unfinished()),
        )

    async def _cancel_in_batches(self, rows: Iterable[RunRow], max_concurrent: int, deadline: float) -> None:
        loop, waiting = asyncio.get_running_loop(), list(rows)
        while waiting and (remaining := deadline - loop.time()) > 0:
            batch, waiting = waiting[:max_concurrent], waiting[max_concurrent:]
            tasks = [asyncio.create_task(self._try_cancel(row)) for row in batch]
            self._cancel_tasks |= {row.run_id: task for row, task in zip(batch, tasks, strict=True)}
            await asyncio.wait(tasks, timeout=remaining)

    async def _try_cancel(self, row: RunRow) -> RunRow | None:
        try:
            return await self._wait_until_over(await self._cancel_run(row))
        except InterlockError:  # it came to its end in another way
            return None

    async def _wait_until_over(self, row: RunRow) -> RunRow:
        """Wait for the process that has the run, where that is another one."""
        log, loop = self._index.log, asyncio.get_running_loop()
        while not row.is_over and (remaining := self._deadline - loop.time()) > 0:
            seen = log.version()
            found = await self._index.get_run(row.run_id)
            if found is None or found.is_over:
                return found or row
            await log.wait_for_change(seen, remaining)
        return row

    async def _list_unfinished(self) -> list[RunRow]:
        found, cursor = list[RunRow](), ""
        while True:
            query = RunQuery(
                statuses=UNFINISHED_STATUSES,
                agent=self._agent or None,
                include_child_runs=True,
                limit=_PAGE_SIZE,
                cursor=cursor,
            )
            page = await self._index.list_runs(query)
            found += page.rows
            cursor = page.next_cursor
            if not cursor:
                return found
