"""Lists: any query, page by page, gives exactly the rows that it asks for, in order, and reads no more than needed."""

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock import MemoryLog
from interlock.domain.event import RunCancelled, RunCompleted, RunPaused
from interlock.domain.state.lifecycle import ActionState
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunQuery, RunRow
from interlock.server.core.index.run_index import BadCursorError, RunIndex
from interlock.server.core.index.statements import SQLITE, SqlStatement, StatementBuilder, to_sql_values

from .index_runs import Kind, asking, begun, granted, paused

if TYPE_CHECKING:
    from tests.postgres.server import PostgresServer

_BUILDER = StatementBuilder(SQLITE)
AGENTS, PEOPLE, KINDS = (
    ("boss", "helper", "clerk"),
    ("user:ada", "user:bob", "key:bot"),
    ("approval", "input", "consent"),
)
STATUSES = ("RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED")


def _many(log: MemoryLog) -> MemoryLog:
    """60 runs of three agents and three people, in all states, some inside of others."""
    for number in range(60):
        kind: Kind = ("approval", "input", "consent")[number % 3]
        about = {
            "agent": AGENTS[number % 3],
            "requester": PEOPLE[number % 2],
            "created_by": PEOPLE[number % 5 % 3],
            "parent_run_id": "run_0" if number % 7 == 3 else "",
        }
        run = begun(log, f"run_{number}", task=f"Mend the Straße of part {number % 4}", **about)
        run.add(*asking("c1", f"act_{number}", kind))
        match number % 5:
            case 0:
                run.add(RunPaused(kind=kind, waiting=("c1",)))
            case 1 if kind == "approval":
                run.add(granted(f"act_{number}"), RunCompleted())
            case 2:
                run.add(RunCancelled())
            case _:
                pass
    return log


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["file", "postgres"])
async def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunIndex]:
    async with AsyncExitStack() as opened:
        log = MemoryLog()
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            stored = await opened.enter_async_context(server.open_log(server.new_schema()))
            log = import_module("tests.server.core.mirrored_log").MirroredLog(stored)
        index = RunIndex(tmp_path_factory.mktemp("lists") / "index.db", _many(log))
        await index.catch_up()
        yield index
        await index.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def index_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    index = RunIndex(tmp_path_factory.mktemp("plans") / "index.db", _many(MemoryLog()))
    await index.catch_up()
    await index.close()
    return index.own_paths[0]


async def _all_runs(index: RunIndex, query: RunQuery) -> list[RunRow]:
    rows: list[RunRow] = []
    page = await index.list_runs(query)
    while page.next_cursor:
        rows += page.rows
        page = await index.list_runs(replace(query, cursor=page.next_cursor))
    return [*rows, *page.rows]


async def _all_actions(index: RunIndex, query: ActionQuery) -> list[ActionRow]:
    rows: list[ActionRow] = []
    page = await index.list_actions(query)
    while page.next_cursor:
        rows += page.rows
        page = await index.list_actions(replace(query, cursor=page.next_cursor))
    return [*rows, *page.rows]


def _is_visible(row: RunRow | ActionRow, query: RunQuery | ActionQuery) -> bool:
    if query.agents is None and query.person is None:
        return True
    is_person = query.person is not None and query.person in (row.requester, row.created_by)
    return is_person or row.agent in (query.agents or ())


def _is_asked_for(row: RunRow, query: RunQuery) -> bool:
    return (
        _is_visible(row, query)
        and (query.statuses is None or row.status in query.statuses)
        and query.agent in (None, row.agent)
        and query.requester in (None, row.requester)
        and (query.parent_run_id is None or (row.parent_run_id == query.parent_run_id != ""))
        and (query.include_child_runs or query.parent_run_id is not None or not row.parent_run_id)
        and all(word.casefold() in f"{row.task}\n{row.run_id}".casefold() for word in (query.text or "").split())
    )


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_RUN_QUERIES = st.builds(
    RunQuery,
    statuses=_maybe(st.frozensets(st.sampled_from((*STATUSES, "NO_SUCH")))),
    agents=_maybe(st.frozensets(st.sampled_from((*AGENTS, *(f"other-{number}" for number in range(20)))), max_size=20)),
    person=_maybe(st.sampled_from((*PEOPLE, "user:nobody"))),
    agent=_maybe(st.sampled_from(AGENTS)),
    requester=_maybe(st.sampled_from(PEOPLE)),
    parent_run_id=st.sampled_from((None, None, None, "run_0", "run_1", "")),
    include_child_runs=st.booleans(),
    text=st.sampled_from((None, None, "STRASSE", "part 3", "run_1", "%", "_", " ", "nowhere", "\ud800")),
    limit=st.sampled_from((1, 7, 50, 1000)),
)


@pytest.mark.requirement("R165")
@pytest.mark.asyncio(loop_scope="module")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_RUN_QUERIES)
async def test_any_list_of_runs_has_exactly_what_it_asks_for_newest_first(index: RunIndex, query: RunQuery) -> None:
    everything = await _all_runs(index, RunQuery(include_child_runs=True, limit=1000))

    listed = await _all_runs(index, query)

    assert listed == [row for row in everything if _is_asked_for(row, query)]
    assert [row.run_id for row in everything] == [f"run_{number}" for number in reversed(range(60))]


_ACTION_QUERIES = st.builds(
    ActionQuery,
    statuses=_maybe(st.frozensets(st.sampled_from([*(state.name for state in ActionState), "NO_SUCH"]))),
    kinds=_maybe(st.frozensets(st.sampled_from(KINDS))),
    agents=_maybe(st.frozensets(st.sampled_from(AGENTS))),
    person=_maybe(st.sampled_from(PEOPLE)),
    agent=_maybe(st.sampled_from(AGENTS)),
    run_id=st.sampled_from((None, None, None, "run_2", "run_5", "run_x")),
    limit=st.sampled_from((1, 7, 50)),
)


@pytest.mark.requirement("R148", "R149")
@pytest.mark.asyncio(loop_scope="module")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ACTION_QUERIES)
async def test_any_list_of_questions_has_exactly_what_it_asks_for_oldest_first(
    index: RunIndex, query: ActionQuery
) -> None:
    everything = await _all_actions(index, ActionQuery(limit=1000))
    over = {
        row.run_id
        for row in await _all_runs(index, RunQuery(include_child_runs=True))
        if row.state in ("cancelled", "failed")
    }

    def is_asked_for(row: ActionRow) -> bool:
        is_left = row.status == "PENDING" and row.run_id in over and query.run_id is None
        return (
            _is_visible(row, query)
            and (query.statuses is None or (row.status in query.statuses and not is_left))
            and (query.kinds is None or row.kind in query.kinds)
            and query.agent in (None, row.agent)
            and query.run_id in (None, row.run_id)
        )

    assert await _all_actions(index, query) == [row for row in everything if is_asked_for(row)]
    assert [row.action_id for row in everything] == [f"act_{number}" for number in range(60)]


@pytest.mark.asyncio(loop_scope="module")
async def test_counts_are_those_of_the_lists(index: RunIndex) -> None:
    for agents, person in ((None, None), (frozenset({"boss"}), None), (frozenset({"boss"}), "user:bob"), (None, "x")):
        listed = await _all_runs(index, RunQuery(agents=agents, person=person))
        asked = await _all_actions(
            index, ActionQuery(agents=agents, person=person, statuses=frozenset({"PENDING"}), limit=1000)
        )

        counts, questions = await index.count_runs(agents, person), await index.count_open_questions(agents, person)

        assert counts == {status: sum(row.status == status for row in listed) for status in STATUSES}
        assert questions == {kind: sum(row.kind == kind for row in asked) for kind in KINDS}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "cursor",
    ["x", "!!", "MA", "LTE", "MTIz=", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "A" * 5_000, "\ud800", "é", "IDE", "MDE"],
)
async def test_a_cursor_that_no_page_gave_out_is_refused_in_words(index: RunIndex, cursor: str) -> None:
    with pytest.raises(BadCursorError, match="Begin without one"):
        await index.list_runs(RunQuery(cursor=cursor))
    with pytest.raises(BadCursorError, match="Begin without one"):
        await index.list_actions(ActionQuery(cursor=cursor))


@given(st.text(min_size=1))
def test_no_text_as_a_cursor_does_more_than_be_refused(cursor: str) -> None:
    with suppress(BadCursorError):
        assert _BUILDER.build_runs(RunQuery(cursor=cursor)).parameters[0] in range(1, 1 << 63)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["\ud800", "a\0b", "' OR 1=1 --", "x" * 100_000])
async def test_no_name_does_more_than_not_be_found(index: RunIndex, text: str) -> None:
    assert await index.get_run(text) is None
    assert await index.get_action(text) is None
    assert (await index.list_runs(RunQuery(agents=frozenset({text}), person=text, requester=text))).rows == ()
    assert sum((await index.count_runs(frozenset({text}), text)).values()) == 0
    assert await index.list_activity(10, frozenset({text}), text) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_limit_is_at_least_one_and_at_most_a_thousand(index: RunIndex) -> None:
    assert len((await index.list_runs(RunQuery(limit=-5))).rows) == 1
    assert _BUILDER.build_runs(RunQuery(limit=10**12)).limit == 1000


@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_goes_on_where_the_last_one_ended_whatever_came_since(tmp_path: Path) -> None:
    log = MemoryLog()
    for number in range(4):
        paused(log, f"run_{number}")
    index = RunIndex(tmp_path / "index.db", log)
    first = await index.list_runs(RunQuery(limit=2))
    paused(log, "run_new")

    second = await index.list_runs(RunQuery(limit=2, cursor=first.next_cursor))

    assert [row.run_id for row in (*first.rows, *second.rows)] == ["run_3", "run_2", "run_1", "run_0"]
    assert second.next_cursor == ""
    await index.close()


_PLANNED: list[tuple[Callable[[Any], SqlStatement], Any]] = [
    (_BUILDER.build_runs, RunQuery()),
    (_BUILDER.build_runs, RunQuery(statuses=frozenset({"PAUSED_APPROVAL"}))),
    (
        _BUILDER.build_runs,
        RunQuery(statuses=frozenset({"PAUSED_APPROVAL", "FAILED"}), agents=frozenset({"boss", "clerk"})),
    ),
    (_BUILDER.build_runs, RunQuery(agents=frozenset(), person="user:ada")),
    (_BUILDER.build_runs, RunQuery(agents=frozenset({"boss"}), person="user:ada", agent="boss")),
    (_BUILDER.build_runs, RunQuery(agents=frozenset(f"agent-{number}" for number in range(70)))),
    (_BUILDER.build_actions, ActionQuery(agents=frozenset(f"agent-{number}" for number in range(70)))),
    (_BUILDER.build_runs, RunQuery(requester="user:ada", statuses=frozenset({"RUNNING"}))),
    (_BUILDER.build_runs, RunQuery(parent_run_id="run_0")),
    (_BUILDER.build_actions, ActionQuery(statuses=frozenset({"PENDING"}))),
    (
        _BUILDER.build_actions,
        ActionQuery(statuses=frozenset({"PENDING"}), agents=frozenset({"boss"}), person="user:ada"),
    ),
    (_BUILDER.build_actions, ActionQuery(run_id="run_0")),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("make", "query"), _PLANNED)
async def test_a_page_is_read_in_order_from_an_index_and_nothing_is_sorted(
    index_file: str, make: Callable[[Any], SqlStatement], query: RunQuery | ActionQuery
) -> None:
    statement = make(query)
    reading = sqlite3.connect(index_file)

    plan = [
        row[3] for row in reading.execute(f"EXPLAIN QUERY PLAN {statement.sql}", to_sql_values(statement.parameters))
    ]

    reading.close()
    tables = [at for at, line in enumerate(plan) if line.startswith(("SEARCH", "SCAN")) and "subquery" not in line][1:]
    assert tables
    if query != RunQuery():
        assert all(plan[at].startswith("SEARCH") for at in tables), plan
    if getattr(query, "run_id", None) is None:
        assert not [at for at in tables if "TEMP B-TREE" in plan[at + 1]], plan


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("count", [0, 70, 300])
async def test_visibility_through_many_agents_lists_the_same(index: RunIndex, count: int) -> None:
    many = frozenset({"boss", *(f"agent-{number}" for number in range(count))})

    found = await index.list_runs(RunQuery(agents=many, include_child_runs=True, limit=1_000))

    assert found == await index.list_runs(RunQuery(agent="boss", include_child_runs=True, limit=1_000))
    assert found.rows
    questions = await index.list_actions(ActionQuery(agents=many, limit=1_000))
    assert questions == await index.list_actions(ActionQuery(agent="boss", limit=1_000))
