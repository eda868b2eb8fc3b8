"""The index of all runs, for lists: what the server asks, wherever the rows are.

A log in Postgres writes them in the transaction of each append (`postgres_index`). For every other log they are in a
file that catches up with the log before every read (`index_updater`). Either way a caller sees its own writes.
"""

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar

from ....storage.event_log import EventLog
from ....storage.indexed_log import IndexedLog
from .activity import ActivityRow
from .feed_follower import IndexListener, IndexUnavailableError
from .index_updater import IndexUpdater
from .postgres_index import PostgresIndex
from .rows import UNFINISHED_STATUSES, ActionOrder, ActionQuery, ActionRow, DamagedRun, Page, RunOrder, RunQuery, RunRow
from .statements import (
    ACTION_COLUMNS,
    QUESTION_KINDS,
    RUN_COLUMNS,
    RUN_STATUSES,
    BadCursorError,
    Dialect,
    SqlCondition,
    SqlStatement,
    SqlValue,
    StatementBuilder,
    encode_cursor,
    encode_deadline_cursor,
    encode_run_cursor,
    to_action_row,
    to_run_row,
)
from .statistics import Statistics, StatisticsPeriod, StatisticsQuery, build_statistics

__all__ = ["ActivityRow", "BadCursorError", "IndexListener", "IndexUnavailableError", "RunIndex"]

_T = TypeVar("_T")

#: Counting more rows than this takes a while: such counts are used again for some seconds.
_EXACT_COUNT = 10_000
COUNT_SECONDS = 5.0
_MAX_COUNTS = 1_000


class IndexStore(Protocol):
    """Where the rows of an index are."""

    position: int
    dialect: Dialect

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        ...

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Notify the listener of every event from now on. Return the function that ends it."""
        ...

    async def catch_up(self) -> None:
        """Wait until everything is indexed that was in the log at the time of the call."""
        ...

    async def fetch_all(self, sql: str, parameters: Sequence[SqlValue]) -> list[Any]:
        """Return the rows of a query."""
        ...

    async def fetch_one(self, sql: str, parameters: Sequence[SqlValue]) -> Sequence[Any] | None:
        """Return a row by its key, or None."""
        ...

    async def list_activity(self, limit: int, where: SqlCondition) -> list[ActivityRow]:
        """Return the most recent events of the runs that fulfil the condition, newest first."""
        ...

    async def mark_damaged(self, runs: Sequence[DamagedRun]) -> None:
        """Show these runs as damaged from now on."""
        ...

    async def refresh_rollups(self) -> bool:
        """Add figures of events that have none yet. Return True if none are left."""
        ...

    async def close(self) -> None:
        """Close the index. Closing twice is fine."""
        ...


class RunIndex:
    """The index of runs and questions. Belongs to one event loop."""

    def __init__(self, path: str | os.PathLike[str], log: EventLog, *, clock: Callable[[], float] = monotonic) -> None:
        """Set up the index of a log. `path` is its file, for a log that has no index of its own."""
        self.log = log
        self._store: IndexStore = PostgresIndex(log) if isinstance(log, IndexedLog) else IndexUpdater(Path(path), log)
        self._clock = clock
        self._counts: OrderedDict[tuple[object, ...], tuple[float, Counter[str]]] = OrderedDict()
        self._builder = StatementBuilder(self._store.dialect)
        dialect, render = self._store.dialect, self._builder.render
        actions = f"SELECT {ACTION_COLUMNS} FROM {dialect.actions}"  # noqa: S608
        expiring = f"FROM {dialect.actions}{dialect.by_expiry} WHERE status = 'PENDING' AND expires_at > 0"
        self._select_run = render(f"SELECT {RUN_COLUMNS} FROM {dialect.runs} WHERE run_id = ?")  # noqa: S608
        #: A fork repeats the questions of its source: the first one is the original.
        self._select_action = render(f"{actions} WHERE action_id = ? ORDER BY number LIMIT 1")
        self._select_action_in_run = render(f"{actions} WHERE run_id = ? AND action_id = ?")
        self._select_next_expiry = f"SELECT expires_at {expiring} ORDER BY expires_at LIMIT 1"
        self._select_expired = render(f"SELECT DISTINCT run_id {expiring} AND expires_at <= ?")

    @property
    def position(self) -> int:
        """The position of the last event that listeners were notified of."""
        return self._store.position

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        return self._store.own_paths

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Notify the listener of every event indexed from now on, once each and in order, page by page. Call the
        returned function to unsubscribe.
        """
        return self._store.subscribe(listener)

    async def catch_up(self) -> None:
        """Wait until everything is indexed that was in the log at the time of the call."""
        await self._store.catch_up()

    async def mark_damaged(self, *runs: DamagedRun) -> None:
        """Show runs as damaged from now on: their questions leave the lists, and closed ones are over."""
        await self._store.mark_damaged(runs)

    async def get_run(self, run_id: str) -> RunRow | None:
        """Return a run, or None."""
        row = await self._store.fetch_one(self._select_run, (run_id,))
        return to_run_row(row) if row else None

    async def get_action(self, action_id: str, run_id: str | None = None) -> ActionRow | None:
        """Return the question with that id: where it was first asked, or in that run."""
        row = await (
            self._store.fetch_one(self._select_action, (action_id,))
            if run_id is None
            else self._store.fetch_one(self._select_action_in_run, (run_id, action_id))
        )
        return to_action_row(row) if row else None

    async def list_runs(self, query: RunQuery) -> Page[RunRow]:
        """Return runs. Raise `BadCursorError` for a cursor of another list."""

        def encode(row: RunRow, number: int) -> str:
            return encode_run_cursor(row, query.order, number)

        is_by_number = query.order in (RunOrder.NEWEST, RunOrder.OLDEST)
        return await self._read_page(self._builder.build_runs(query), to_run_row, None if is_by_number else encode)

    async def list_actions(self, query: ActionQuery) -> Page[ActionRow]:
        """Return questions. Over all runs, PENDING excludes questions of runs that are over. In one run it is what its
        log says. By deadline there are only open ones.
        """
        by_deadline = encode_deadline_cursor if query.order is ActionOrder.DEADLINE else None
        return await self._read_page(self._builder.build_actions(query), to_action_row, by_deadline)

    async def count_runs(self, agents: Collection[str] | None = None, person: str | None = None) -> dict[str, int]:
        """Return how many runs have each status, without child runs. Many are counted every few seconds only."""
        rows = f"{self._store.dialect.runs} WHERE inside = 0"
        return dict.fromkeys(RUN_STATUSES, 0) | await self._count_by_column("status", rows, agents, person)

    async def count_unfinished_runs(
        self, agents: Collection[str] | None = None, person: str | None = None
    ) -> dict[str, int]:
        """Return how many runs that have not ended have each status, without child runs."""
        statuses = sorted(UNFINISHED_STATUSES)
        names = ", ".join(f"'{status}'" for status in statuses)
        rows = f"{self._store.dialect.runs} WHERE inside = 0 AND status IN ({names})"
        return dict.fromkeys(statuses, 0) | await self._count_by_column("status", rows, agents, person)

    async def count_open_questions(
        self, agents: Collection[str] | None = None, person: str | None = None
    ) -> dict[str, int]:
        """Return how many questions of each kind are open. Many are counted every few seconds only."""
        rows = f"{self._store.dialect.actions} WHERE status = 'PENDING'"
        return dict.fromkeys(QUESTION_KINDS, 0) | await self._count_by_column("kind", rows, agents, person)

    async def list_activity(
        self, limit: int = 50, agents: Collection[str] | None = None, person: str | None = None
    ) -> list[ActivityRow]:
        """Return the most recent events of all runs, newest first."""
        where = self._builder.build_visibility_condition(agents, person)
        return await self._store.list_activity(max(1, limit), where)

    async def refresh_rollups(self) -> bool:
        """Add figures of events that have none yet. Return True if none are left."""
        return await self._store.refresh_rollups()

    async def read_statistics(
        self, period: StatisticsPeriod, now: int, agents: Collection[str] | None = None
    ) -> Statistics:
        """Return the statistics of the period that ends now, of these agents."""
        await self._store.refresh_rollups()
        query = StatisticsQuery(period, now, agents)
        figures, usage, ages = [
            await self._store.fetch_all(self._builder.render(sql), values)
            for sql, values in (
                query.build_figures(),
                query.build_usage(),
                query.build_ages(self._store.dialect.action_leads),
            )
        ]
        return build_statistics(query, figures, usage, ages[0])

    async def get_next_expiry(self) -> int:
        """Return when the next open question expires; 0: none does."""
        row = await self._store.fetch_one(self._select_next_expiry, ())
        return row[0] if row else 0

    async def list_expired_runs(self, now: int) -> list[str]:
        """Return the runs with an open question that has expired by then."""
        return [run_id for (run_id,) in await self._store.fetch_all(self._select_expired, (now,))]

    async def close(self) -> None:
        """Close the index. Closing twice is fine."""
        await self._store.close()

    async def _read_page(
        self,
        statement: SqlStatement,
        make: Callable[[Sequence[Any]], _T],
        encode: Callable[[_T, int], str] | None = None,
    ) -> Page[_T]:
        found = await self._store.fetch_all(statement.sql, statement.parameters)
        rows = tuple(make(row[1:]) for row in found[: statement.limit])
        if len(found) <= statement.limit:
            return Page(rows)
        number = found[statement.limit - 1][0]
        return Page(rows, encode(rows[-1], number) if encode else encode_cursor(number))

    async def _count_by_column(
        self, column: str, rows: str, agents: Collection[str] | None, person: str | None
    ) -> Counter[str]:
        key = (rows, None if agents is None else frozenset(agents), person)
        until, counted = self._counts.get(key, (0.0, Counter[str]()))
        if self._clock() < until:
            return counted
        counted = Counter[str]()
        for statement in self._builder.build_counts(column, rows, agents, person):
            counted.update(dict(await self._store.fetch_all(statement.sql, statement.parameters)))
        self._counts.pop(key, None)
        if counted.total() > _EXACT_COUNT:
            self._counts[key] = self._clock() + COUNT_SECONDS, counted
            if len(self._counts) > _MAX_COUNTS:
                self._counts.popitem(last=False)
        return counted
