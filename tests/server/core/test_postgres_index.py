"""The index in Postgres answers as the one in a file does, and is never behind the log."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings

from interlock import MemoryLog
from interlock.domain.errors import LogFencedError
from interlock.domain.event import RunCompleted, RunStarted
from interlock.server.core.index.rows import ActionQuery, DamagedRun, RunQuery
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.index.statistics import StatisticsPeriod
from interlock.storage.postgres.log import PostgresLog
from tests.postgres.server import PostgresServer
from tests.storage.runs import append

from .index_runs import T0, Kind, Written, asking, begun, granted, paused, real_runs
from .mirrored_log import MirroredLog
from .test_index import STEPS, Walk


@pytest_asyncio.fixture
async def stored(postgres: PostgresServer) -> AsyncGenerator[PostgresLog]:
    async with postgres.open_log(postgres.empty_schema()) as log:
        yield log


async def _everything(index: RunIndex) -> list[Any]:
    runs = await index.list_runs(RunQuery(include_child_runs=True, limit=1_000))
    actions = await index.list_actions(ActionQuery(limit=1_000))
    pending = await index.list_actions(ActionQuery(statuses=frozenset({"PENDING"}), limit=1_000))
    counts = [await index.count_runs(), await index.count_open_questions(), await index.get_next_expiry()]
    statistics = await index.read_statistics(StatisticsPeriod.DAY, T0)
    return [runs.rows, actions.rows, pending.rows, *counts, statistics]


_example = count()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_both_indexes_answer_the_same(
    tmp_path: Path, postgres: PostgresServer, steps: list[tuple[int, tuple[str, int, Kind], bool]]
) -> None:
    schema = postgres.empty_schema()
    async with postgres.open_log(schema) as stored:
        mirrored, memory = MirroredLog(stored), MemoryLog()
        first = RunIndex(tmp_path / f"{next(_example)}.db", memory)
        second = RunIndex(tmp_path / "unused.db", mirrored)
        walks = [[Walk(log, f"run_{number}") for log in (memory, mirrored)] for number in range(3)]

        for number, draw, is_looked_at in steps:
            for walk in walks[number]:
                walk.step(draw)
            if is_looked_at:  # else several appends become one
                await mirrored.index.copy()

        assert await _everything(second) == await _everything(first)
        await first.close()
        await second.close()


async def test_recent_activity_is_the_same(tmp_path: Path, stored: PostgresLog) -> None:
    feed = await (await real_runs()).feed()
    mirrored, memory = MirroredLog(stored), MemoryLog()
    for placed in feed:
        for log in (mirrored, memory):
            log.append(placed.entry.run_id, [placed.entry])
    first, second = RunIndex(tmp_path / "index.db", memory), RunIndex(tmp_path / "unused.db", mirrored)

    for limit, agents, person in (
        (5, None, None),
        (1_000, None, None),
        (20, frozenset({"helper"}), None),
        (9, None, "user:ada"),
    ):
        expected = [
            (row.run_id, row.seq, row.type, row.text) for row in await first.list_activity(limit, agents, person)
        ]
        found = [(row.run_id, row.seq, row.type, row.text) for row in await second.list_activity(limit, agents, person)]
        assert found == expected
        assert found
    await first.close()


async def _append(log: PostgresLog, run: Written) -> None:
    await append(log, run.run_id, (await run.log.read(run.run_id))[await _next_seq(log, run.run_id) :])


async def _next_seq(log: PostgresLog, run_id: str) -> int:
    return len(await log.read(run_id))


async def test_an_append_is_listed_at_once_by_another_process(
    tmp_path: Path, postgres: PostgresServer, stored: PostgresLog
) -> None:
    """Nothing catches up: the reader has seen no change of the log."""
    async with postgres.open_log(postgres.shared_schema) as other:
        index = RunIndex(tmp_path / "index.db", other)
        await _append(stored, paused(MemoryLog(), "run_1"))

        row = await index.get_run("run_1")

        assert row is not None
        assert (row.status, row.open_questions, row.last_seq) == ("PAUSED_APPROVAL", 1, 6)


async def test_rows_that_older_code_left_behind_are_made_again(
    tmp_path: Path, postgres: PostgresServer, stored: PostgresLog
) -> None:
    for run_id in ("run_1", "run_2"):
        run = paused(MemoryLog(), run_id)
        run.add(granted(f"act_{run_id}"))
        await _append(stored, run)
    index = RunIndex(tmp_path / "index.db", stored)
    expected = await _everything(index)
    postgres.execute(
        "UPDATE runs SET indexed_seq = 0; UPDATE indexed_runs SET status = 'RUNNING', open_questions = 7;"
        " DELETE FROM indexed_actions",
        postgres.shared_schema,
    )

    assert await stored.index.reindex() == 2

    assert await _everything(index) == expected
    assert await stored.index.reindex() == 0


async def test_an_append_makes_stale_rows_again(tmp_path: Path, postgres: PostgresServer, stored: PostgresLog) -> None:
    run = paused(MemoryLog(), "run_1")
    await _append(stored, run)
    postgres.execute("UPDATE runs SET indexed_seq = 3; DELETE FROM indexed_actions", postgres.shared_schema)

    run.add(granted("act_run_1"))
    await _append(stored, run)

    index = RunIndex(tmp_path / "index.db", stored)
    row, action = await index.get_run("run_1"), await index.get_action("act_run_1")
    assert row is not None
    assert action is not None
    assert (row.open_questions, action.status, action.decided_by) == (0, "APPROVED", "user:ann")
    assert await stored.index.reindex() == 0


@pytest.mark.parametrize("name", ["a" * 5_000, "a\0b", "ä" * 3_000])
async def test_no_name_keeps_an_append_from_being_written(tmp_path: Path, stored: PostgresLog, name: str) -> None:
    run = Written(MemoryLog(), "run_1")
    run.add(RunStarted(schema=1, agent=name, requester=name, created_by=name))
    run.add(*asking("c1", name))
    await _append(stored, run)
    index = RunIndex(tmp_path / "index.db", stored)

    listed = await index.list_runs(RunQuery(agents=frozenset({name})))

    assert [row.run_id for row in listed.rows] == ["run_1"]
    assert (await index.list_runs(RunQuery(agents=frozenset({name[:-1]})))).rows == ()
    assert await index.get_action(name, "run_1") is not None


async def test_a_fault_of_the_projection_marks_the_run_and_not_the_append(
    tmp_path: Path, stored: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(MemoryLog(), "run_1")
    await _append(stored, run)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("interlock.storage.postgres.indexing.apply_event", fail)
    run.add(RunCompleted())
    await _append(stored, run)

    row = await RunIndex(tmp_path / "index.db", stored).get_run("run_1")
    assert row is not None
    assert row.is_damaged
    assert row.message == "The log of this run is damaged at event 2: its row cannot be made: a bug."
    assert await _next_seq(stored, "run_1") == 3


async def test_a_closed_damaged_run_stays_closed(tmp_path: Path, stored: PostgresLog) -> None:
    run = paused(MemoryLog(), "run_1")
    await _append(stored, run)
    index = RunIndex(tmp_path / "index.db", stored)
    damaged = DamagedRun(run_id="run_1", problem="its hash differs", closed_by="user:ann", reason="Lost.")

    await index.mark_damaged(damaged)
    run.add(granted("act_run_1"))
    await _append(stored, run)

    row = await index.get_run("run_1")
    assert row is not None
    assert (row.status, row.message, row.open_questions) == ("FAILED", damaged.message, 0)
    assert (await index.list_actions(ActionQuery(statuses=frozenset({"PENDING"})))).rows == ()


async def test_child_of_a_leased_run_acts_for_the_same_person(tmp_path: Path, stored: PostgresLog) -> None:
    """The row of its parent came with the lease."""
    await _append(stored, begun(MemoryLog(), "run_1", requester="user:ada", created_by="key:bot"))
    lease = await stored.acquire("run_1")

    await _append(stored, paused(MemoryLog(), "run_1.in", agent="helper", parent_run_id="run_1", parent_call_id="c"))

    await stored.release(lease)
    row = await RunIndex(tmp_path / "index.db", stored).get_run("run_1.in")
    assert row is not None
    assert (row.requester, row.created_by) == ("user:ada", "key:bot")


async def test_refused_append_of_a_group_is_not_listed(tmp_path: Path, stored: PostgresLog) -> None:
    """Appends that wait for each other become one statement."""
    runs = [paused(MemoryLog(), f"run_{number}") for number in range(20)]
    entries = [await run.log.read(run.run_id) for run in runs]
    lease = await stored.acquire("run_7")  # so that an append without it is refused

    appended = [stored.append(run.run_id, some) for run, some in zip(runs, entries, strict=True)]
    results = await asyncio.gather(*[each for each in appended if each], return_exceptions=True)

    assert [type(each) for each in results if each] == [LogFencedError]
    await stored.release(lease)
    index = RunIndex(tmp_path / "index.db", stored)
    listed = (await index.list_runs(RunQuery())).rows
    asked = (await index.list_actions(ActionQuery(statuses=frozenset({"PENDING"})))).rows
    expected = {run.run_id for run in runs} - {"run_7"}
    assert ({row.run_id for row in listed}, {row.run_id for row in asked}) == (expected, expected)
    assert len({row.action_id for row in asked}) == 19


async def test_rows_of_an_archived_run_stay(tmp_path: Path, postgres: PostgresServer, stored: PostgresLog) -> None:
    await _append(stored, paused(MemoryLog(), "run_1"))
    index = RunIndex(tmp_path / "index.db", stored)
    expected = await _everything(index)

    postgres.execute("UPDATE runs SET indexed_seq = 0; DELETE FROM appends", postgres.shared_schema)

    assert await stored.index.reindex() == 0
    assert await _everything(index) == expected
