"""Lists of runs: states, dates, words, orders and pages, in a file and in Postgres."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from msgspec.structs import replace

from interlock import MemoryLog
from interlock.domain import event as facts
from interlock.domain.event import Fact
from interlock.domain.messages import Usage
from interlock.domain.observation import Observation
from interlock.domain.state.ledger import USAGE_FACT_KEY
from interlock.rendering.run_states import DisplayState
from interlock.server.core.index.rows import RunOrder, RunQuery, RunRow
from interlock.server.core.index.run_index import BadCursorError, RunIndex
from tests.each import each

from .index_runs import T0, asking, begun

if TYPE_CHECKING:
    from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDS: dict[DisplayState, Fact] = {
    DisplayState.COMPLETED: facts.RunCompleted(),
    DisplayState.DEGRADED: facts.RunDegraded(message="Half."),
    DisplayState.FAILED: facts.RunFailed(message="Broken.", code="model_failed"),
    DisplayState.REJECTED: facts.RunFailed(message="No.", code="user_denied"),
    DisplayState.EXPIRED: facts.RunFailed(message="Late.", code="consent_expired"),
    DisplayState.CANCELLED: facts.RunCancelled(message="Enough."),
}


def _fill(log: MemoryLog) -> MemoryLog:
    """Two runs of each end, then one that runs and one that waits; each is more expensive than the one before."""
    for number, end in enumerate([*ENDS.values(), *ENDS.values()]):
        run = begun(log, f"run_{number}", task=f"Task {number}", requester=f"user:{'ab'[number % 2]}")
        run.add(*(facts.WarningRaised(message="Look.") for _ in range(number % 5)))
        run.add(facts.ModelResponded(usage=Usage(input_tokens=10, output_tokens=number, cost=number / 10)), end)
    begun(log, "run_12").add(_child_result())
    begun(log, "run_13", forked_from="run_1").add(*asking("c1", "act_1", title="Refund 42.00 EUR to Mia"))
    return log


def _child_result() -> Fact:
    used = {"input_tokens": 7, "cost": 9.5}
    observation = Observation(call_id="c", tool="ask", ok=True, summary="Done.", facts={USAGE_FACT_KEY: used})
    return facts.CallObserved(observation_id="o", observation=observation)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["file", "postgres"])
async def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunIndex]:
    folder: Path = tmp_path_factory.mktemp("index")
    async with AsyncExitStack() as stack:
        log = MemoryLog()
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            stored = await stack.enter_async_context(server.open_log(server.new_schema()))
            log = import_module("tests.server.core.mirrored_log").MirroredLog(stored)
        opened = RunIndex(folder / "index.db", _fill(log))
        yield opened
        await opened.close()


async def _list(index: RunIndex, query: RunQuery) -> list[RunRow]:
    """All rows of a list, page by page."""
    found = await index.list_runs(query)
    rows = list(found.rows)
    while found.next_cursor:
        found = await index.list_runs(replace(query, cursor=found.next_cursor))
        rows += found.rows
    return rows


async def _names(index: RunIndex, query: RunQuery) -> list[int]:
    return [int(row.run_id.removeprefix("run_")) for row in await _list(index, query)]


@each("state", list(ENDS))
async def test_every_end_is_a_state_of_its_own(index: RunIndex, state: DisplayState) -> None:
    number = list(ENDS).index(state)
    rows = await _list(index, RunQuery(states=frozenset((state,))))
    assert [row.run_id for row in rows] == [f"run_{number + 6}", f"run_{number}"]
    assert {row.display_state for row in rows} == {state}
    assert await _names(index, RunQuery(states=frozenset((state,)), agent="boss", requester="user:a")) == (
        [number + 6, number] if number % 2 == 0 else []
    )


async def test_states_and_statuses_narrow_each_other(index: RunIndex) -> None:
    failed = frozenset(("FAILED",))
    states = frozenset((DisplayState.REJECTED, DisplayState.COMPLETED, DisplayState.RUNNING))
    assert await _names(index, RunQuery(states=states)) == [13, 12, 9, 6, 3, 0]
    assert await _names(index, RunQuery(states=states, statuses=failed)) == [9, 3]
    assert await _names(index, RunQuery(states=states, statuses=failed, order=RunOrder.COST)) == [9, 3]
    assert await _names(index, RunQuery(states=frozenset((DisplayState.STOPPED,)))) == []
    assert await _names(index, RunQuery(states=frozenset())) == []


@each("order", list(RunOrder))
@each("limit", [1, 3, 50])
async def test_pages_of_every_order_have_each_run_once(index: RunIndex, order: RunOrder, limit: int) -> None:
    keys: dict[RunOrder, Callable[[RunRow], float]] = {
        RunOrder.NEWEST: lambda row: -int(row.run_id[4:]),
        RunOrder.OLDEST: lambda row: int(row.run_id[4:]),
        RunOrder.UPDATED: lambda row: -row.updated_at,
        RunOrder.DURATION: lambda row: row.created_at - row.updated_at,
        RunOrder.TOKENS: lambda row: -row.input_tokens - row.output_tokens,
        RunOrder.COST: lambda row: -row.cost,
    }
    rows = await _list(index, RunQuery(order=order, limit=limit))
    assert sorted(row.run_id for row in rows) == sorted(f"run_{number}" for number in range(14))
    assert [keys[order](row) for row in rows] == sorted(keys[order](row) for row in rows)


async def test_figures_have_the_results_of_child_runs(index: RunIndex) -> None:
    rows = await _list(index, RunQuery(order=RunOrder.COST, limit=2))
    assert [(row.run_id, row.input_tokens, row.output_tokens, row.cost) for row in rows[:2]] == [
        ("run_12", 7, 0, 9.5),
        ("run_11", 10, 11, 1.1),
    ]


async def test_forks_are_found_by_their_source(index: RunIndex) -> None:
    assert await _names(index, RunQuery(forked_from="run_1")) == [13]
    assert await _names(index, RunQuery(forked_from="run_1", order=RunOrder.TOKENS)) == [13]
    assert await _names(index, RunQuery(forked_from="run_1", statuses=frozenset(("FAILED",)))) == []
    assert await _names(index, RunQuery(forked_from="")) == []


async def test_words_find_the_titles_of_questions(index: RunIndex) -> None:
    assert await _names(index, RunQuery(text="refund MIA")) == [13]
    assert await _names(index, RunQuery(text="refund task")) == []


async def test_dates_include_their_begin_and_not_their_end(index: RunIndex) -> None:
    assert len(await _names(index, RunQuery(started_since=T0, started_before=T0 + 1))) == 14
    assert await _names(index, RunQuery(started_since=T0 + 1)) == []
    assert await _names(index, RunQuery(started_before=T0)) == []
    assert await _names(index, RunQuery(started_before=T0, order=RunOrder.DURATION)) == []


async def test_a_cursor_of_another_order_is_refused(index: RunIndex) -> None:
    by_cost = await index.list_runs(RunQuery(order=RunOrder.COST, limit=1))
    with pytest.raises(BadCursorError):
        await index.list_runs(RunQuery(cursor=by_cost.next_cursor))
