"""The rows of lists in Postgres, for readers. The writer of each process writes them (`indexing`)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from ...domain.errors import LogError
from ...domain.state.lifecycle import RUN_STATUS, RunState
from ..event_log import FeedEntry
from ..indexed_log import RecentEvent
from ..packing import unpack
from ..projection import UNANSWERED_STATUS
from .connection import Connection, ConnectionPool, Connector, execute, first_line
from .indexing import clean_text, fit_key, rebuild
from .migrate import check_schema
from .queries import QUERIES

T = TypeVar("T")

#: Appends that are looked at for recent events: about 10,000 events.
_RECENT_APPENDS = 2_000
_PAGE_RUNS = 500
#: Parameters of the events of an append.
_APPENDED = ("row_run_ids", "row_seqs", "row_counts", "places", "bodies", "hashes")


class IndexTables:
    """The index of one log."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def fetch(self, sql: str, parameters: Sequence[str | int]) -> list[Any]:
        """Return the rows of a query."""
        values = tuple(fit_key(value) if isinstance(value, str) else value for value in parameters)
        return await self._run(lambda connection: execute(connection, sql, values).fetchall())

    async def list_recent(
        self, before: int, limit: int, where: str, parameters: Sequence[str | int]
    ) -> list[RecentEvent]:
        """Return the events of the newest appends below a position whose runs fulfil a condition, newest first."""
        sql = f"{QUERIES['recent_appends']} {where} ORDER BY position DESC LIMIT {limit:d}"
        rows = await self.fetch(sql, (_RECENT_APPENDS, before, *parameters))
        return [
            RecentEvent(FeedEntry(position + place, entry), agent, status)
            for position, run_id, seq, count, bodies, hashes, agent, status in rows
            for place, entry in reversed(list(enumerate(unpack(run_id, seq, count, bytes(bodies), bytes(hashes)))))
        ]

    async def mark_damaged(self, run_id: str, message: str, *, is_closed: bool) -> None:
        """Show a run as damaged, and a closed one as cancelled."""
        values = {
            "run_id": clean_text(run_id),
            "message": clean_text(message),
            "is_closed": is_closed,
            "closed_state": RunState.CANCELLED.value,
            "closed_status": RUN_STATUS[RunState.CANCELLED],
            "unanswered": UNANSWERED_STATUS,
        }
        await self._run(lambda connection: execute(connection, QUERIES["mark_damaged"], values) and None)

    async def reindex(self) -> int:
        """Make the rows again that do not know all events of their run. Return how many runs that were."""
        return await self._run(_reindex)

    async def _run(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._pool.run, work)


def reindex(url: str, schema: str = "interlock") -> int:
    """Make the rows of lists again that do not know all events of their run. Return how many runs that were."""
    connector = Connector(url, schema)
    try:
        with connector.open("interlock-migrate") as connection:
            check_schema(connection, connector)
            return _reindex(connection)
    except psycopg.Error as error:
        raise LogError(f"cannot index the {connector.description}: {first_line(error)}") from error


def _reindex(connection: Connection) -> int:
    number, total = 0, 0
    while rows := execute(connection, QUERIES["runs_to_index"], (number, _PAGE_RUNS)).fetchall():
        for number, run_id, next_seq, token in rows:
            total += _rebuild_run(connection, number, run_id, next_seq, token)
    return total


def _rebuild_run(connection: Connection, number: int, run_id: str, next_seq: int, token: int) -> bool:
    """Make the rows of a run again, unless an append did that meanwhile: it does, or it can be done later."""
    update, updated_at = rebuild(connection, number, run_id)
    rows: dict[str, Any] = {name: [] for name in _APPENDED}
    values = {
        "run_ids": [run_id],
        "seqs": [next_seq],
        "counts": [0],
        "tokens": [token],
        "states": [None],
        "woken": [False],
        "wake_ats": [None],
        "parents": [None],
        "updated_ats": [updated_at],
        **rows,
        **update._asdict(),
    }
    return bool(execute(connection, QUERIES["append_listed"], values).fetchall())
