"""What an append to a log in Postgres costs beside one to a file, and how many commits a run has.

Both logs are on the disk: SQLite with `synchronous=FULL`, Postgres with `synchronous_commit=on`. They take turns.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from interlock import EventLog, Runner
from interlock.storage import SqliteLog
from interlock.testing.log_entries import append_entries, make_entries
from tests.postgres.server import PostgresServer

from .workers import agent

#: A folder on a disk, also where `/tmp` is in memory.
DISK = "/var/tmp"  # noqa: S108 - folders in it have random names
EVENTS = (1, 5)
_MESSAGE = "x" * 180
_ROUNDS = 5
_NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


async def compare_appends(server: PostgresServer, appends: int, events: int) -> tuple[float, float, float]:
    """Return the median of the ratios of rounds, and the milliseconds of an append to Postgres and to SQLite."""
    ratios: list[tuple[float, float, float]] = []
    with TemporaryDirectory(dir=DISK) as folder:
        sqlite = SqliteLog(Path(folder) / "log.db")
        async with server.open_log(server.new_schema()) as postgres:
            for number in range(_ROUNDS):
                ours = await _append_ms(postgres, f"run-{number}", appends, events)
                theirs = await _append_ms(sqlite, f"run-{number}", appends, events)
                ratios.append((ours / theirs, ours, theirs))
        await sqlite.close()
    return sorted(ratios)[len(ratios) // 2]


async def _append_ms(log: EventLog, run_id: str, appends: int, events: int) -> float:
    entries = make_entries(run_id, appends * events, _MESSAGE)
    lease = await log.acquire(run_id)
    times: list[float] = []
    for first in range(0, len(entries), events):
        begun = perf_counter()
        await append_entries(log, run_id, entries[first : first + events], lease)
        times.append(perf_counter() - begun)
    await log.release(lease)
    return median(times) * 1e3


async def count_commits(server: PostgresServer) -> int:
    """Return how many transactions a run of five governed steps writes, from its start to its end."""
    schema = server.new_schema()
    async with server.open_log(schema, lease_seconds=600) as log, Runner(agent(), log=log) as runner:
        await runner.run("Count.")
        before = _transactions(server.query(_NEXT_TRANSACTION, schema))
        await runner.run("Count.")
        return _transactions(server.query(_NEXT_TRANSACTION, schema)) - before


def _transactions(rows: Sequence[tuple[int]]) -> int:
    return rows[0][0]
