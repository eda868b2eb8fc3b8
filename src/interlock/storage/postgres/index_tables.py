"""The rows of lists in Postgres, for readers. The writer of each process writes them (`indexing`)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from ...domain.errors import LogError
from ...domain.event import Event
from ...domain.state.lifecycle import RUN_STATUS, RunState
from ..event_log import FeedEntry
from ..indexed_log import IndexValue, RecentEvent
from ..packing import unpack
from ..projection import UNANSWERED_STATUS
from ..rollups import Rollups, RunFacts
from .connection import Connection, ConnectionPool, Connector, execute, first_line
from .indexing import clean_text, fit_key, rebuild
from .migrate import check_schema
from .queries import QUERIES

T = TypeVar("T")

#: Appends that are looked at for recent events: about 10,000 events.
_RECENT_APPENDS = 2_000
_PAGE_RUNS = 500
_ROLLUP_COLUMNS = ("widths", "starts", "metrics", "agents", "names", "counts", "totals")
#: Parameters of the events of an append.
_APPENDED = ("row_run_ids", "row_seqs", "row_counts", "places", "bodies", "hashes")


class IndexTables:
    """The index of one log."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def fetch(self, sql: str, parameters: Sequence[IndexValue]) -> list[Any]:
        """Return the rows of a query."""
        values = tuple(map(_to_parameter, parameters))
        return await self._run(lambda connection: execute(connection, sql, values).fetchall())

    async def list_recent(
        self, before: int, limit: int, where: str, parameters: Sequence[IndexValue]
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

    async def read_rollup_position(self) -> int:
        """Return the position of the last event whose figures were added."""
        return (await self.fetch(QUERIES["read_rollup_position"], ()))[0][0]

    async def find_run_facts(self, events: Sequence[Event]) -> dict[str, RunFacts]:
        """Return what figures need to know of the runs of these events."""
        run_ids = list({clean_text(event.run_id) for event in events})
        action_ids = list({fit_key(getattr(event.fact, "action_id", "")) for event in events})

        def find(connection: Connection) -> dict[str, RunFacts]:
            runs = execute(connection, QUERIES["find_counted_runs"], (run_ids,)).fetchall()
            questions = execute(connection, QUERIES["find_asked_times"], (run_ids, action_ids)).fetchall()
            asked: dict[str, dict[str, int]] = {run_id: {} for run_id, *_ in runs}
            for run_id, action_id, at in questions:
                asked[run_id][action_id] = at
            return {
                run_id: RunFacts(agent, bool(inside), partial(_find_asked_at, asked[run_id]))
                for run_id, agent, inside in runs
            }

        return await self._run(find)

    async def add_rollups(self, after: int, until: int, rollups: Rollups) -> bool:
        """Add the figures of the events after one position, to another. Return False where another server did."""
        rows = [(*key._replace(name=fit_key(key.name)), *sums) for key, sums in rollups.items()]
        columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _ROLLUP_COLUMNS]
        values = {"after": after, "until": until, **dict(zip(_ROLLUP_COLUMNS, columns, strict=True))}
        return await self._run(lambda connection: bool(execute(connection, QUERIES["add_rollups"], values).fetchall()))

    async def _run(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._pool.run, work)


def _to_parameter(value: IndexValue) -> str | float | list[str]:
    if isinstance(value, tuple):
        return list(map(fit_key, value))
    return fit_key(value) if isinstance(value, str) else value


def _find_asked_at(asked: dict[str, int], action_id: str) -> int:
    return asked.get(fit_key(action_id), 0)


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
        "holders": [None],
        "released": [False],
        **rows,
        **update._asdict(),
    }
    return bool(execute(connection, QUERIES["append_listed"], values).fetchall())
