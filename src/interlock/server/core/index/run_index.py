"""The index of all runs, for lists. It is derived from the log (`index_updater`), and every read catches up with the
log first: a caller sees its own writes.
"""

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ....storage.event_log import EventLog
from . import projection
from .index_file import IndexFile, IndexUnavailableError
from .index_updater import IndexListener, IndexUpdater
from .projection import ActivityRow
from .rows import ActionQuery, ActionRow, DamagedRun, Page, RunQuery, RunRow
from .statements import (
    ACTION_COLUMNS,
    QUESTION_KINDS,
    RUN_COLUMNS,
    RUN_STATUSES,
    BadCursorError,
    SqlStatement,
    SqlValue,
    build_actions_statement,
    build_disjoint_visibility,
    build_runs_statement,
    build_visibility_condition,
    encode_cursor,
    to_action_row,
    to_run_row,
    to_sql_values,
)

__all__ = ["ActivityRow", "BadCursorError", "IndexListener", "IndexUnavailableError", "RunIndex"]

_T = TypeVar("_T")

_SELECT_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?"  # noqa: S608
#: A fork repeats the questions of its source: the first one is the original.
_SELECT_ACTION = f"SELECT {ACTION_COLUMNS} FROM actions WHERE action_id = ? ORDER BY number LIMIT 1"  # noqa: S608
_SELECT_ACTION_IN_RUN = f"SELECT {ACTION_COLUMNS} FROM actions WHERE run_id = ? AND action_id = ?"  # noqa: S608
_FROM_EXPIRING = "FROM actions INDEXED BY actions_by_expiry WHERE status = 'PENDING' AND expires_at > 0"
_SELECT_NEXT_EXPIRY = f"SELECT expires_at {_FROM_EXPIRING} ORDER BY expires_at LIMIT 1"
_SELECT_EXPIRED = f"SELECT DISTINCT run_id {_FROM_EXPIRING} AND expires_at <= ?"


class RunIndex:
    """The index of runs and questions. Belongs to one event loop; the file is opened on first use."""

    def __init__(self, path: str | os.PathLike[str], log: EventLog) -> None:
        self.log = log
        self._path = Path(path)
        self._updater = IndexUpdater(self._path, log)

    @property
    def position(self) -> int:
        """The position of the last indexed event."""
        return self._updater.position

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        path = str(self._path.resolve())
        return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Notify the listener of every event indexed from now on, once each and in order, page by page. Call the
        returned function to unsubscribe.
        """
        return self._updater.subscribe(listener)

    async def catch_up(self) -> None:
        """Wait until everything is indexed that was in the log at the time of the call."""
        await self._updater.catch_up()

    async def mark_damaged(self, *runs: DamagedRun) -> None:
        """Show runs as damaged from now on: their questions leave the lists, and closed ones are over."""
        await self._updater.mark_damaged(runs)

    async def get_run(self, run_id: str) -> RunRow | None:
        """Return a run, or None."""
        row = await self._fetch_one(_SELECT_RUN, run_id)
        return to_run_row(row) if row else None

    async def get_action(self, action_id: str, run_id: str | None = None) -> ActionRow | None:
        """Return the question with that id: where it was first asked, or in that run."""
        row = await (
            self._fetch_one(_SELECT_ACTION, action_id)
            if run_id is None
            else self._fetch_one(_SELECT_ACTION_IN_RUN, run_id, action_id)
        )
        return to_action_row(row) if row else None

    async def list_runs(self, query: RunQuery) -> Page[RunRow]:
        """Return runs, newest first. Raise `BadCursorError` for a cursor of another list."""
        return await self._read_page(build_runs_statement(query), to_run_row)

    async def list_actions(self, query: ActionQuery) -> Page[ActionRow]:
        """Return questions, oldest first. Over all runs, PENDING excludes questions of runs that are over. In one run
        it is what its log says.
        """
        return await self._read_page(build_actions_statement(query), to_action_row)

    async def count_runs(self, agents: Collection[str] | None = None, person: str | None = None) -> dict[str, int]:
        """Return how many runs have each status, without child runs."""
        return dict.fromkeys(RUN_STATUSES, 0) | await self._count_by_column(
            "status", "runs WHERE inside = 0", agents, person
        )

    async def count_open_questions(
        self, agents: Collection[str] | None = None, person: str | None = None
    ) -> dict[str, int]:
        """Return how many questions of each kind are open."""
        found = await self._count_by_column("kind", "actions WHERE status = 'PENDING'", agents, person)
        return dict.fromkeys(QUESTION_KINDS, 0) | found

    async def list_activity(
        self, limit: int = 50, agents: Collection[str] | None = None, person: str | None = None
    ) -> list[ActivityRow]:
        """Return the most recent events of all runs, newest first."""
        where = build_visibility_condition(agents, person)
        sql = (
            "SELECT activity.number, activity.run_id, agent, status, seq, at, type, title, tone, icon, tool, action_id,"  # noqa: S608
            " text"
            " FROM activity CROSS JOIN runs ON runs.run_id = activity.run_id"
            f" WHERE {where.sql} ORDER BY activity.number DESC LIMIT ?"
        )
        given = (*where.parameters, max(1, min(limit, projection.MAX_ACTIVITY_ROWS)))
        found = await self._fetch_all(sql, given)
        names = ActivityRow.__struct_fields__
        return [ActivityRow(**dict(zip(names, row, strict=True))) for row in found]

    async def get_next_expiry(self) -> int:
        """Return when the next open question expires; 0: none does."""
        row = await self._fetch_one(_SELECT_NEXT_EXPIRY)
        return row[0] if row else 0

    async def list_expired_runs(self, now: int) -> list[str]:
        """Return the runs with an open question that has expired by then."""
        found = await self._fetch_all(_SELECT_EXPIRED, (now,))
        return [run_id for (run_id,) in found]

    async def close(self) -> None:
        """Close the index. Closing twice is fine."""
        await self._updater.close()

    async def _read_page(self, statement: SqlStatement, make: Callable[[Sequence[Any]], _T]) -> Page[_T]:
        def read(connection: sqlite3.Connection) -> Page[_T]:
            found = connection.execute(statement.sql, to_sql_values(statement.parameters)).fetchall()
            rows = found[: statement.limit]
            more = encode_cursor(rows[-1][0]) if len(found) > statement.limit else ""
            return Page(tuple(make(row[1:]) for row in rows), more)

        return await self._read(read)

    async def _count_by_column(
        self, column: str, rows: str, agents: Collection[str] | None, person: str | None
    ) -> Counter[str]:
        def count(connection: sqlite3.Connection) -> Counter[str]:
            counted: Counter[str] = Counter()
            for part in build_disjoint_visibility(agents, person):
                sql = f"SELECT {column}, count(*) FROM {rows} AND {part.sql} GROUP BY {column}"  # noqa: S608
                counted.update(dict(connection.execute(sql, to_sql_values(part.parameters)).fetchall()))
            return counted

        return await self._read(count)

    async def _fetch_all(self, sql: str, parameters: Sequence[SqlValue]) -> list[Any]:
        return await self._read(lambda connection: connection.execute(sql, to_sql_values(parameters)).fetchall())

    async def _read(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        def locked(file: IndexFile) -> _T:
            with file.read_lock:
                return read(file.read_connection)

        return await self._updater.read_from_file(lambda file: asyncio.to_thread(locked, file))

    async def _fetch_one(self, sql: str, *parameters: SqlValue) -> Sequence[Any] | None:
        """Fetch a row by its key in the event loop, which is faster than a thread."""

        async def find(file: IndexFile) -> Sequence[Any] | None:
            return file.lookup_connection.execute(sql, to_sql_values(parameters)).fetchone()

        return await self._updater.read_from_file(find)
