"""Lists of questions: search, filters, orders and pages, in a file and in Postgres."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from msgspec.structs import replace

from interlock import MemoryLog
from interlock.server.core.index.rows import ActionOrder, ActionQuery
from interlock.server.core.index.run_index import BadCursorError, RunIndex
from interlock.server.core.index.statements import SQLITE, StatementBuilder, to_sql_values
from tests.each import each

from .index_runs import T0, asking, begun, granted

if TYPE_CHECKING:
    from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN = frozenset(("PENDING",))
HOUR = 3_600_000_000_000


def _fill(log: MemoryLog) -> MemoryLog:
    """12 refunds and e-mails; the last one is answered."""
    for number in range(12):
        is_refund = number % 3 > 0
        arguments = {
            "order": f"O-{number}",
            "to": {"name": ["Zoë Straße", "Mia"][number % 2]},
            "payment": {"amount": [number * 100, f"{number}00.00 EUR"][number % 2], "is_paid": True},
        }
        run = begun(log, f"run_{number}", requester=f"user:{'ab'[number % 2]}")
        run.add(
            *asking(
                "c1",
                f"act_{number}",
                expires_at=0 if number % 4 == 0 else T0 + (20 - number) * HOUR,
                tool_name="refund" if is_refund else "send_mail",
                title=f"Refund order O-{number}" if is_refund else "Send an e-mail",
                arguments=arguments,
                risk=("network",) if is_refund else ("write",),
                rule_ids=("money",) if is_refund else ("mail", "mail-2"),
                asked_at=T0 + number * HOUR,
            )
        )
        if number == 11:
            run.add(granted("act_11"))
    return log


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["file", "postgres"])
async def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunIndex]:
    async with AsyncExitStack() as opened:
        log = MemoryLog()
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            stored = await opened.enter_async_context(server.open_log(server.new_schema()))
            log = import_module("tests.server.core.mirrored_log").MirroredLog(stored)
        index = RunIndex(tmp_path_factory.mktemp("questions") / "index.db", _fill(log))
        await index.catch_up()
        yield index
        await index.close()


async def _list(index: RunIndex, query: ActionQuery) -> list[int]:
    """The numbers of all questions that a query finds, page by page."""
    found, page = list[str](), await index.list_actions(query)
    while True:
        found += [row.action_id for row in page.rows]
        if not page.next_cursor:
            return [int(action_id.removeprefix("act_")) for action_id in found]
        page = await index.list_actions(replace(query, cursor=page.next_cursor))


@each(
    "query, expected",
    [
        (ActionQuery(text="refund"), [1, 2, 4, 5, 7, 8, 10, 11]),
        (ActionQuery(text="STRASSE o-4"), [4]),
        (ActionQuery(text="mia", statuses=OPEN), [1, 3, 5, 7, 9]),
        (ActionQuery(text="%"), []),
        (ActionQuery(tool="send_mail"), [0, 3, 6, 9]),
        (ActionQuery(requester="user:b", statuses=OPEN), [1, 3, 5, 7, 9]),
        (ActionQuery(requester="user:b", person="user:a"), []),
        (ActionQuery(risk="write"), [0, 3, 6, 9]),
        (ActionQuery(risk="writ"), []),
        (ActionQuery(rule="mail"), [0, 3, 6, 9]),
        (ActionQuery(rule='"'), []),
        (ActionQuery(asked_before=T0 + 2 * HOUR), [0, 1, 2]),
        (ActionQuery(action_ids=frozenset(("act_3", "act_7", "act_x"))), [3, 7]),
        (ActionQuery(action_ids=frozenset()), []),
        (ActionQuery(other_than_ids=frozenset(f"act_{number}" for number in range(2, 5_000))), [0, 1]),
        (ActionQuery(other_than_ids=frozenset(), text="mia", statuses=OPEN), [1, 3, 5, 7, 9]),
        (ActionQuery(text="amount>=900"), [9, 10, 11]),
        (ActionQuery(text="Payment.Amount > 200 amount<600 refund"), [4, 5]),
        (ActionQuery(text="amount=700"), [7]),
        (ActionQuery(text="amount<0.5"), [0]),
        (ActionQuery(text="is_paid>=0"), []),
        (ActionQuery(text="order>=0"), []),
        (ActionQuery(text='"]}>=0'), []),
    ],
)
async def test_filters_find_exactly_these(index: RunIndex, query: ActionQuery, expected: list[int]) -> None:
    assert await _list(index, query) == expected


@each("limit", [1, 3, 50])
@each(
    "order, expected",
    [
        (ActionOrder.OLDEST, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (ActionOrder.NEWEST, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (ActionOrder.DEADLINE, [10, 9, 7, 6, 5, 3, 2, 1, 0, 4, 8]),
    ],
)
async def test_pages_keep_their_order(index: RunIndex, order: ActionOrder, expected: list[int], limit: int) -> None:
    assert await _list(index, ActionQuery(statuses=OPEN, order=order, limit=limit)) == expected


@each("cursor", ["MTI", "MTIt", "LTEy", "MC0w", "x", "A" * 100, "é"])
async def test_cursor_of_another_list_is_refused(index: RunIndex, cursor: str) -> None:
    with pytest.raises(BadCursorError, match="Begin without one"):
        await index.list_actions(ActionQuery(order=ActionOrder.DEADLINE, cursor=cursor))


async def test_rows_have_the_rules_that_ask(index: RunIndex) -> None:
    row = await index.get_action("act_0")

    assert row is not None
    assert row.rules == ("mail", "mail-2")


@each("order", list(ActionOrder))
async def test_search_reads_open_questions_only(order: ActionOrder, tmp_path: Path) -> None:
    """However many are answered: the plan looks up those that are open in an index."""
    index = RunIndex(tmp_path / "index.db", _fill(MemoryLog()))
    await index.catch_up()
    await index.close()
    query = ActionQuery(statuses=OPEN, text="refund", risk="network", order=order)
    statement = StatementBuilder(SQLITE).build_actions(query)

    reading = sqlite3.connect(index.own_paths[0])
    plan = reading.execute(f"EXPLAIN QUERY PLAN {statement.sql}", to_sql_values(statement.parameters)).fetchall()
    reading.close()

    assert any("actions_by_status (status=?" in row[3] for row in plan), plan
    assert not any(row[3] == "SCAN actions" for row in plan), plan
