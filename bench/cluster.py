"""`python -m bench cluster`: the speed of runs on many hosts, each figure with its target.

Every section starts a database for itself. Where Postgres and SQLite are compared, both are on a disk; the other
sections have the database in memory, where possible.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psycopg

from tests.postgres.server import PostgresServer
from tests.server.story.cluster import cluster

from . import appends, postgres_lists, replicas, wakeups, workers
from .report import table
from .targets import number

_MAX_COMMITS, _MAX_WAKE_MS, _MAX_IDLE_PERCENT, _MAX_RATIO = 13, 25.0, 1.0, 2.0
_HEAD = ("figure", "measured", "target", "")


class Sizes(NamedTuple):
    """How much is measured. The targets are those of the defaults."""

    runs: int = workers.RUNS
    paused: int = 100_000
    answers: int = 50
    idle_seconds: float = 10.0
    appends: int = 200
    rows: int = postgres_lists.ROWS
    approvals: int = replicas.RUNS


class Row(NamedTuple):
    """A figure with its target and whether it is reached."""

    figure: str
    measured: str
    target: str
    is_reached: bool

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row as text."""
        return self.figure, self.measured, self.target, "ok" if self.is_reached else "MISSED"


@contextmanager
def _database(*settings: str, parent: str = "") -> Generator[PostgresServer]:
    server = PostgresServer(parent)
    try:
        yield server.start(*settings)
    finally:
        server.close()


def _at_most(figure: str, found: float, limit: float, text: str = "", unit: str = "") -> Row:
    return Row(figure, text or f"{number(found)}{unit}", f"<= {limit:g}{unit}", found <= limit)


def _measure_runs(sizes: Sizes) -> list[Row]:
    with _database() as server:
        found = workers.measure(server, sizes.runs)
        commits = asyncio.run(appends.count_commits(server))
    rate = found["runs per second"]
    ours, theirs = found["CPU ms per run, workers"], found["CPU ms per run, Postgres"]
    is_reached = rate >= workers.MIN_RATE or ours + theirs <= workers.MAX_CPU_MS
    measured = f"{rate:.0f} runs/s, {ours:.1f} + {theirs:.1f} ms"
    target = f">= {workers.MIN_RATE:g} runs/s, or <= {workers.MAX_CPU_MS:g} ms"
    return [
        Row("2 workers, runs of 5 governed steps; CPU per run, workers + Postgres", measured, target, is_reached),
        _at_most("commits of such a run, with those of its lease", commits, _MAX_COMMITS, f"{commits}"),
    ]


def _measure_wakeups(sizes: Sizes) -> list[Row]:
    with _database() as server:
        found = asyncio.run(wakeups.measure(server, sizes.paused, sizes.answers, sizes.idle_seconds))
    text = f"{found.p50_ms:.1f} (p95 {found.p95_ms:.1f})"
    return [
        _at_most(f"answer to start of its call, {found.paused:,} paused, p50 ms", found.p50_ms, _MAX_WAKE_MS, text),
        _at_most("CPU of an idle worker beside them", found.idle_percent, _MAX_IDLE_PERCENT, unit=" %"),
    ]


def _measure_appends(sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    with _database(parent=appends.DISK) as server:
        for events in appends.EVENTS:
            ratio, ours, theirs = asyncio.run(appends.compare_appends(server, sizes.appends, events))
            text = f"{ratio:.2f}x ({ours:.2f} beside {theirs:.2f} ms)"
            rows.append(
                _at_most(
                    f"append of {events} event{'s'[: events > 1]} beside SQLite FULL", ratio, _MAX_RATIO, text, "x"
                )
            )
    return rows


def _measure_lists(sizes: Sizes) -> list[Row]:
    with _database("autovacuum=on", "max_wal_size=4GB") as server:
        schema = server.new_schema()
        postgres_lists.fill_rows(server, schema, sizes.rows)
        timings = asyncio.run(_time_lists(server, schema))
    pages = {name: timing for name, timing in timings.items() if name != "reconcile" and "counts" not in name}
    slowest, limit = max(pages, key=lambda name: pages[name].database), postgres_lists.LIMIT_MS
    text = f"{pages[slowest].database:.2f} ({slowest})"
    return [
        _at_most(f"slowest page of {sizes.rows:,} runs, ms in the database", pages[slowest].database, limit, text),
        _at_most(f"reconcile with {sizes.rows:,} runs, ms in the database", timings["reconcile"].database, limit),
    ]


async def _time_lists(server: PostgresServer, schema: str) -> dict[str, postgres_lists.Timing]:
    with psycopg.connect(server.url, options=f"-c search_path={schema}") as connection:
        async with server.open_log(schema) as log:
            return await postgres_lists.measure(log, connection)


def _measure_replicas(sizes: Sizes) -> list[Row]:
    with TemporaryDirectory() as folder, _database() as server, cluster(server, Path(folder)) as (here, there):
        _, shown = replicas.measure(here, there, sizes.approvals)
    text = f"{median(shown):.0f} (max {max(shown):.0f})"
    return [_at_most("approval at one server, shown at another, p50 ms", median(shown), replicas.TARGET_MS, text)]


SECTIONS: dict[str, Callable[[Sizes], list[Row]]] = {
    "runs": _measure_runs,
    "wakeups": _measure_wakeups,
    "appends": _measure_appends,
    "lists": _measure_lists,
    "replicas": _measure_replicas,
}


def report(sections: Sequence[str], sizes: Sizes) -> str:
    """Measure these sections, and return their table with the load of the machine."""
    before = os.getloadavg()[0]
    rows = [row.cells for section in sections for row in SECTIONS[section](sizes)]
    load = f"{os.cpu_count()} cores, load {before:.1f} at the start and {os.getloadavg()[0]:.1f} at the end."
    return f"{table([_HEAD, *rows])}\n\n{load}"
