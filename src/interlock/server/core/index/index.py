"""The index: what lists show about all runs. All of it is derived from the log (`index_pass`), and every read catches
up with the log first: whoever wrote there finds it here."""

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ....storage.event_log import EventLog
from . import activity
from .activity import ActivityRow
from .file import IndexFailedError, IndexFile
from .lists import (
    ACTION_COLUMNS,
    KINDS,
    RUN_COLUMNS,
    RUN_WORDS,
    BadCursorError,
    Statement,
    Value,
    action_row,
    bound,
    cursor_at,
    page_of_actions,
    page_of_runs,
    run_row,
    visible,
    visible_parts,
)
from .rows import ActionQuery, ActionRow, Page, RunQuery, RunRow
from .update import IndexPass, Listener

__all__ = ["ActivityRow", "BadCursorError", "Index", "IndexFailedError", "Listener"]

_T = TypeVar("_T")

_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?"  # noqa: S608
#: A fork tells the questions of the run that it comes from anew: the first one is the question itself.
_ACTION = f"SELECT {ACTION_COLUMNS} FROM actions WHERE action_id = ? ORDER BY number LIMIT 1"  # noqa: S608
_ACTION_IN_RUN = f"SELECT {ACTION_COLUMNS} FROM actions WHERE run_id = ? AND action_id = ?"  # noqa: S608
_EXPIRING = "FROM actions INDEXED BY actions_by_expiry WHERE status = 'PENDING' AND expires_at > 0"
_NEXT_EXPIRY = f"SELECT expires_at {_EXPIRING} ORDER BY expires_at LIMIT 1"
_EXPIRED = f"SELECT DISTINCT run_id {_EXPIRING} AND expires_at <= ?"


class Index:
    """Belongs to one event loop. The file is opened by the first who asks for something."""

    def __init__(self, path: str | os.PathLike[str], log: EventLog) -> None:
        self.log = log
        self._path = Path(path)
        self._pass = IndexPass(self._path, log)

    @property
    def position(self) -> int:
        """Of the last event that the rows tell of, among the events of all runs."""
        return self._pass.position

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Where its files are, which no tool may touch."""
        path = str(self._path.resolve())
        return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Have it told of every event that is indexed from now on, once each and in order, page by page. Calling what
        is returned ends it."""
        return self._pass.on_change(listener)

    async def catch_up(self) -> None:
        """Returns when everything is indexed that was in the log when it was called."""
        await self._pass.catch_up()

    async def run(self, run_id: str) -> RunRow | None:
        row = await self._find(_RUN, run_id)
        return run_row(row) if row else None

    async def action(self, action_id: str, run_id: str | None = None) -> ActionRow | None:
        """The question of that id: where it was asked first, or in that run."""
        row = await (
            self._find(_ACTION, action_id) if run_id is None else self._find(_ACTION_IN_RUN, run_id, action_id)
        )
        return action_row(row) if row else None

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        """Newest first, by when they were begun. `BadCursorError` for a cursor of something else."""
        return await self._page(page_of_runs(query), run_row)

    async def actions(self, query: ActionQuery) -> Page[ActionRow]:
        """Oldest first. Over all runs, PENDING is what somebody must still answer: questions of runs that are over are
        not among them. In one run it is what its log says."""
        return await self._page(page_of_actions(query), action_row)

    async def counts(self, agents: Collection[str] | None = None, person: str | None = None) -> dict[str, int]:
        """How many runs have each status, without those inside of others."""
        return dict.fromkeys(RUN_WORDS, 0) | await self._counted("status", "runs WHERE inside = 0", agents, person)

    async def open_questions(self, agents: Collection[str] | None = None, person: str | None = None) -> dict[str, int]:
        """How many questions of each kind wait for an answer."""
        found = await self._counted("kind", "actions WHERE status = 'PENDING'", agents, person)
        return dict.fromkeys(KINDS, 0) | found

    async def recent(
        self, limit: int = 50, agents: Collection[str] | None = None, person: str | None = None
    ) -> list[ActivityRow]:
        """What happened last in all runs, newest first."""
        where = visible(agents, person)
        sql = (
            "SELECT activity.number, activity.run_id, agent, status, seq, at, type, tool, action_id, text"  # noqa: S608
            " FROM activity CROSS JOIN runs ON runs.run_id = activity.run_id"
            f" WHERE {where.sql} ORDER BY activity.number DESC LIMIT ?"
        )
        given = (*where.parameters, max(1, min(limit, activity.KEPT)))
        found = await self._all(sql, given)
        names = ActivityRow.__struct_fields__
        return [ActivityRow(**dict(zip(names, row, strict=True))) for row in found]

    async def next_expiry(self) -> int:
        """When the next open question expires; 0: none does."""
        row = await self._find(_NEXT_EXPIRY)
        return row[0] if row else 0

    async def expired(self, now: int) -> list[str]:
        """The runs in which an open question has expired by then."""
        found = await self._all(_EXPIRED, (now,))
        return [run_id for (run_id,) in found]

    async def close(self) -> None:
        """Nothing can be read afterwards. Closing twice is fine."""
        await self._pass.close()

    async def _page(self, statement: Statement, make: Callable[[Sequence[Any]], _T]) -> Page[_T]:
        def read(connection: sqlite3.Connection) -> Page[_T]:
            found = connection.execute(statement.sql, bound(statement.parameters)).fetchall()
            rows = found[: statement.limit]
            more = cursor_at(rows[-1][0]) if len(found) > statement.limit else ""
            return Page(tuple(make(row[1:]) for row in rows), more)

        return await self._read(read)

    async def _counted(
        self, column: str, rows: str, agents: Collection[str] | None, person: str | None
    ) -> Counter[str]:
        def count(connection: sqlite3.Connection) -> Counter[str]:
            counted: Counter[str] = Counter()
            for part in visible_parts(agents, person):
                sql = f"SELECT {column}, count(*) FROM {rows} AND {part.sql} GROUP BY {column}"  # noqa: S608
                counted.update(dict(connection.execute(sql, bound(part.parameters)).fetchall()))
            return counted

        return await self._read(count)

    async def _all(self, sql: str, parameters: Sequence[Value]) -> list[Any]:
        return await self._read(lambda connection: connection.execute(sql, bound(parameters)).fetchall())

    async def _read(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        def locked(file: IndexFile) -> _T:
            with file.read_lock:
                return read(file.reading)

        return await self._pass.on_file(lambda file: asyncio.to_thread(locked, file))

    async def _find(self, sql: str, *parameters: Value) -> Sequence[Any] | None:
        """One row by its key, in the event loop: it takes less than handing it to a thread."""

        async def find(file: IndexFile) -> Sequence[Any] | None:
            return file.finding.execute(sql, bound(parameters)).fetchone()

        return await self._pass.on_file(find)
