"""Pages and the reconciler's query read no more rows than they need: what `bench.postgres_lists` measures, as plans."""

import json
from collections.abc import Iterator
from typing import Any, LiteralString, cast

import psycopg
import pytest

from bench.postgres_lists import ACTION_QUERIES, RUN_QUERIES, fill_rows
from interlock.server.core.index.rows import ActionQuery, RunQuery
from interlock.server.core.index.statements import POSTGRES, StatementBuilder
from interlock.storage.postgres.queries import QUERIES
from tests.each import each
from tests.postgres.server import PostgresServer

ROWS = 20_000
_BUILDER = StatementBuilder(POSTGRES)
#: A page has 50 rows, and one more that shows that there is another page.
_PAGE = 51
_LARGE = ("runs", "indexed_runs", "indexed_actions")


@pytest.fixture(scope="module")
def filled(postgres: PostgresServer) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    schema = postgres.new_schema()
    fill_rows(postgres, schema, ROWS)
    with psycopg.connect(postgres.url, options=f"-c search_path={schema}") as connection:
        yield connection


def _read_plan(connection: psycopg.Connection[tuple[Any, ...]], sql: str, parameters: Any) -> list[dict[str, Any]]:
    """The nodes of the plan, with how many rows each of them has read."""
    explained = cast(LiteralString, f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}")
    row = connection.execute(explained, parameters).fetchone()
    assert row is not None
    nodes = [row[0][0]["Plan"]]
    for node in nodes:
        nodes += node.get("Plans", [])
    return nodes


def _rows_read(nodes: list[dict[str, Any]]) -> float:
    """Rows of the large tables that were looked at, used or not."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes
        if node.get("Relation Name") in _LARGE
    )


@each("query", [*RUN_QUERIES.values(), *ACTION_QUERIES.values()])
def test_page_reads_as_many_rows_as_it_has(
    filled: psycopg.Connection[tuple[Any, ...]], query: RunQuery | ActionQuery
) -> None:
    """A page finds its numbers in as many parts as there are owners and statuses, and then reads its rows."""
    statement = _BUILDER.build_runs(query) if isinstance(query, RunQuery) else _BUILDER.build_actions(query)

    nodes = _read_plan(filled, statement.sql, statement.parameters)

    parts = statement.sql.count("AS subquery")
    assert _rows_read(nodes) <= _PAGE * (parts * 1.3 + 2), json.dumps(nodes, indent=1)
    scanned = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    assert not set(scanned) & set(_LARGE)


def test_reconciler_reads_runs_that_can_continue_only(filled: psycopg.Connection[tuple[Any, ...]]) -> None:
    """And none that was due, and is over."""
    filled.execute("UPDATE runs SET wake_at = now() - interval '1 hour' WHERE state = 2")
    nodes = _read_plan(filled, QUERIES["runs_to_wake"], (500,))
    filled.rollback()

    can_continue = ROWS // 1_000
    assert _rows_read(nodes) <= 3 * can_continue, json.dumps(nodes, indent=1)
