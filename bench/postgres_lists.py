"""`python -m bench.postgres_lists [--rows N]`: what lists cost in Postgres, with a million runs by default.

The rows are generated in the database: one run in ten waits for an approval, one in a thousand is held by a process.
The database is started for this; the times are those of a caller of `RunIndex`, with a round trip and a thread.
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, LiteralString, NamedTuple, cast

import psycopg

from interlock.server.core.index.rows import ActionQuery, RunQuery
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.index.statements import POSTGRES, SqlStatement, StatementBuilder
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.postgres.queries import QUERIES
from tests.postgres.server import PostgresServer

ROWS = 1_000_000
_ROUNDS = 25
#: The limit of a page and of the reconciler's query, in milliseconds.
LIMIT_MS = 5.0

_FILL = """
INSERT INTO processes (host, boot, pid, started, lease_seconds) VALUES ('bench', '', 1, 1, 1e9);
INSERT INTO runs (run_id, next_seq, state, queue, token, last_token, holder, indexed_seq, updated_at, touched_at)
SELECT 'run_' || lpad(to_hex(n), 32, '0'), 50, CASE WHEN n % 1000 = 1 THEN 0 WHEN n % 10 = 0 THEN 1 ELSE 2 END,
    'default', CASE WHEN n % 1000 = 1 THEN 1 ELSE 0 END, 1,
    CASE WHEN n % 1000 = 1 THEN (SELECT max(id) FROM processes) END, 50, n, now() - interval '1 hour'
FROM generate_series(1, {rows}) AS n;
INSERT INTO indexed_runs
SELECT number, state, status, 'agent-' || number % 10, 'user:' || number % 100, 'key:bot', parent, '', 'agent',
    (parent <> '')::int, task, '', number, CASE WHEN status = 'PAUSED_APPROVAL' THEN 1 ELSE 0 END, true, -1,
    lower(task) || E'\\n' || run_id
FROM (
    SELECT number, run_id,
        CASE WHEN number % 20 = 7 THEN 'run_' || lpad(to_hex(number - 1), 32, '0') ELSE '' END AS parent,
        CASE WHEN number % 1000 = 1 THEN 'running' WHEN number % 10 = 0 THEN 'paused_approval'
            WHEN number % 100 = 2 THEN 'failed' ELSE 'completed' END AS state,
        CASE WHEN number % 1000 = 1 THEN 'RUNNING' WHEN number % 10 = 0 THEN 'PAUSED_APPROVAL'
            WHEN number % 100 = 2 THEN 'FAILED' ELSE 'COMPLETED' END AS status,
        'Fix failing test number ' || number || ' in the parser and say what was wrong with it.' AS task
    FROM runs
) AS run;
INSERT INTO indexed_actions
SELECT number << 24, number, 'act_' || lpad(to_hex(number), 32, '0'), state, status, agent, requester, created_by,
    'call_1', 'write_file', 'write_file src/parser.py', 'approval', 'sha256:0', '["write"]', number,
    1000000000 + number, 8, 0, ''
FROM (
    SELECT number, agent, requester, created_by,
        CASE WHEN status = 'PAUSED_APPROVAL' THEN 'pending' ELSE 'executed' END AS state,
        CASE WHEN status = 'PAUSED_APPROVAL' THEN 'PENDING' ELSE 'EXECUTED' END AS status
    FROM indexed_runs WHERE number % 10 < 3
) AS action;
"""
_TABLES = ("runs", "indexed_runs", "indexed_actions", "processes")

_PAUSED, _PENDING = frozenset({"PAUSED_APPROVAL"}), frozenset({"PENDING"})
_AGENTS = frozenset(f"agent-{number}" for number in range(3))
RUN_QUERIES = {
    "newest runs": RunQuery(),
    "runs that wait": RunQuery(statuses=_PAUSED),
    "active runs": RunQuery(statuses=frozenset({"RUNNING"})),
    "runs of one agent": RunQuery(agent="agent-3"),
    "failed runs of one agent": RunQuery(agent="agent-2", statuses=frozenset({"FAILED"})),
    "runs of one person": RunQuery(requester="user:7"),
    "runs that a person may see": RunQuery(agents=_AGENTS, person="user:7"),
    "runs that wait, of a person": RunQuery(agents=_AGENTS, person="user:7", statuses=_PAUSED),
    "child runs of one run": RunQuery(parent_run_id=f"run_{26:032x}", include_child_runs=True),
    "a word that most runs have": RunQuery(text="parser"),
}
ACTION_QUERIES = {
    "open questions": ActionQuery(statuses=_PENDING),
    "open questions that a person may see": ActionQuery(agents=_AGENTS, person="user:7", statuses=_PENDING),
    "questions of one run": ActionQuery(run_id=f"run_{30:032x}"),
}


def fill_rows(server: PostgresServer, schema: str, rows: int) -> None:
    """Write rows of so many runs, without their events."""
    server.execute(cast(LiteralString, _FILL.format(rows=rows)), schema)
    for table in _TABLES:
        server.execute(f"VACUUM ANALYZE {table}", schema)


class Timing(NamedTuple):
    """Milliseconds: of the statement in the database, and of its caller. The best of some rounds, because what other
    programs of the machine do only adds to it.
    """

    database: float
    caller: float


async def measure(log: PostgresLog, connection: psycopg.Connection[tuple[Any, ...]]) -> dict[str, Timing]:
    """Measure each list, a page in the middle, and the reconciler's query."""
    index, builder = RunIndex("unused", log), StatementBuilder(POSTGRES)
    middle = await index.list_runs(RunQuery(limit=1_000, text="number 5"))
    runs = RUN_QUERIES | {"newest runs, after a cursor": RunQuery(cursor=middle.next_cursor)}
    timings: dict[str, Timing] = {}
    for name, query in runs.items():
        calling = await _best_ms(lambda query=query: index.list_runs(query))
        timings[name] = Timing(_explain(connection, builder.build_runs(query)), calling)
    for name, query in ACTION_QUERIES.items():
        calling = await _best_ms(lambda query=query: index.list_actions(query))
        timings[name] = Timing(_explain(connection, builder.build_actions(query)), calling)
    reconciling = SqlStatement(QUERIES["runs_to_wake"], (500,), 500)
    calling = await _best_ms(lambda: log.queues.reconcile(60.0))
    timings["reconcile"] = Timing(_explain(connection, reconciling), calling)
    (counting,) = builder.build_counts("status", "listed_runs WHERE inside = 0", None, None)
    calling = await _best_ms(lambda: RunIndex("unused", log).count_runs())
    timings["counts (cached for 5 s)"] = Timing(_explain(connection, SqlStatement(*counting, 0)), calling)
    return timings


def _explain(connection: psycopg.Connection[tuple[Any, ...]], statement: SqlStatement) -> float:
    """Return the time of the execution; planning is left out, because statements are prepared."""
    sql = cast(LiteralString, f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement.sql}")
    found = [connection.execute(sql, statement.parameters).fetchone() for _ in range(_ROUNDS)]
    return min(row[0][0]["Execution Time"] for row in found if row)


async def _best_ms(case: Callable[[], Awaitable[object]]) -> float:
    times: list[float] = []
    for _ in range(_ROUNDS):
        begun = perf_counter()
        await case()
        times.append(perf_counter() - begun)
    return min(times) * 1e3


async def _main(rows: int) -> None:
    server = PostgresServer()
    try:
        server.start("autovacuum=on", "max_wal_size=4GB")
        schema = server.new_schema()
        begun = perf_counter()
        fill_rows(server, schema, rows)
        print(f"{rows:,} runs written in {perf_counter() - begun:.0f} s; load {os.getloadavg()[0]:.1f}")
        with psycopg.connect(server.url, options=f"-c search_path={schema}") as connection:
            for table in _TABLES[:3]:
                row = connection.execute("SELECT pg_table_size(%s), pg_indexes_size(%s)", (table, table)).fetchone()
                assert row is not None
                print(f"  {table}: {row[0] >> 20} MiB, indexes {row[1] >> 20} MiB")
            async with server.open_log(schema) as log:
                timings = await measure(log, connection)
        print(f"  {'milliseconds':40} database   caller")
        for name, timing in timings.items():
            mark = "" if timing.database <= LIMIT_MS or name.startswith("counts") else f"  over {LIMIT_MS} ms"
            print(f"  {name:40} {timing.database:8.2f} {timing.caller:8.2f}{mark}")
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="how many runs there are")
    options = parser.parse_args()
    asyncio.run(_main(options.rows))


if __name__ == "__main__":
    main()
