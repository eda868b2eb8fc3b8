"""One damaged run affects no other run, list or inbox. It is shown as damaged, and an operator closes it."""

from pathlib import Path

import pytest

from interlock.domain.state.lifecycle import RunState
from interlock.server.core.errors import ConflictError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery, RunQuery
from interlock.server.core.service import Service
from tests.log_rows import edit_events

from .serving import BOB, OPEN, World, approve, asked, create, serving, status

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN, Role.OPERATOR, Role.AUDITOR}))

_EVENTS = "run = (SELECT number FROM runs WHERE run_id = :run) AND seq"
_LAST = f"(SELECT max(seq) FROM events WHERE {_EVENTS} >= 0)"  # noqa: S608
DAMAGE = {
    "edited": f"UPDATE events SET body = CAST(body AS TEXT) || ' ' WHERE {_EVENTS} = 3",  # noqa: S608
    "no JSON": f"UPDATE events SET body = X'7B' WHERE {_EVENTS} = 3",  # noqa: S608
    "another hash": f"UPDATE events SET hash = zeroblob(32) WHERE {_EVENTS} = 2",  # noqa: S608
    "last cut": f"UPDATE events SET body = X'' WHERE {_EVENTS} = {_LAST}",  # noqa: S608
    "one gone": f"DELETE FROM events WHERE {_EVENTS} = 3",  # noqa: S608
}


def damage(folder: Path, run_id: str, how: str) -> None:
    edit_events(folder / "runs.db", "DELETE FROM snapshots")
    edit_events(folder / "runs.db", DAMAGE[how], parameters={"run": run_id})


async def _two_waiting(service: Service) -> tuple[str, str]:
    bad, good = await create(service, "one"), await create(service, "one")
    await asked(service, bad)
    await asked(service, good)
    return bad, good


def _conflict(error: pytest.ExceptionInfo[ConflictError]) -> str:
    return error.value.code


async def _assert_only_one_is_affected(service: Service, bad: str, good: str) -> None:
    """Everything about the damaged run is refused by that name, and everything about the other one works."""
    queries = service.run_queries
    for read in (queries.get_state, queries.list_calls, queries.list_actions):
        with pytest.raises(ConflictError) as refused:
            await read(ADMIN, bad)
        assert _conflict(refused) == "log_damaged"
    rows = {row.run_id: row for row in (await queries.list_runs(ADMIN, RunQuery())).rows}
    assert rows[bad].is_damaged
    assert "damaged" in rows[bad].message
    assert not rows[good].is_damaged
    questions = (await queries.list_questions(ADMIN, ActionQuery(statuses=OPEN))).rows
    assert [row.run_id for row in questions] == [good]
    assert (await queries.get_overview(ADMIN)).open_questions["approval"] == 1


@pytest.mark.requirement("P26")
@pytest.mark.parametrize("how", DAMAGE)
async def test_damaged_run_affects_no_other(tmp_path: Path, how: str) -> None:
    world = World()
    async with serving(tmp_path, world.one()) as service:
        bad, good = await _two_waiting(service)
        damage(tmp_path, bad, how)
        (question,) = (await service.index.list_actions(ActionQuery(run_id=bad))).rows
        with pytest.raises(ConflictError) as refused:
            await approve(service, question)
        assert _conflict(refused) == "log_damaged"
        await _assert_only_one_is_affected(service, bad, good)

    async with serving(tmp_path, world.one()) as service:
        await service.worker.engine.ready.wait()
        await _assert_only_one_is_affected(service, bad, good)
        await approve(service, (await asked(service, good))[0])
        await status(service, good, "COMPLETED")

    assert world.changes == ["x"]


def _drop_index(state: Path) -> None:
    for file in state.glob("index.db*"):
        file.unlink()


@pytest.mark.requirement("P26")
@pytest.mark.parametrize("is_rebuilt", [False, True])
async def test_operator_closes_a_damaged_run(tmp_path: Path, is_rebuilt: bool) -> None:
    world = World()
    async with serving(tmp_path, world.one()) as service:
        bad, _ = await _two_waiting(service)
        damage(tmp_path, bad, "edited")

        closed = await service.run_service.cancel(BOB, bad, "Restore from backup.")
        again = await service.run_service.cancel(BOB, bad, "Again.")
        entries = await service.audit_log.read()

    assert (closed.state, closed.is_damaged, closed.open_questions) == (RunState.CANCELLED, True, 0)
    assert closed.message.endswith("Closed by user:bob: Restore from backup.")
    assert again == closed
    assert [entry.target for entry in entries if entry.action == "runs.close_damaged"] == [bad]
    if is_rebuilt:
        _drop_index(tmp_path / "state")
    async with serving(tmp_path, world.one()) as service:
        assert await service.index.get_run(bad) == closed


@pytest.mark.requirement("P26")
async def test_stopping_an_agent_closes_its_damaged_run(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one()) as service:
        bad, _ = await _two_waiting(service)
        damage(tmp_path, bad, "no JSON")

        stopped = await service.run_service.stop_agent(ADMIN, "one", "Enough.")

    assert (stopped.cancelled, stopped.unfinished) == (2, ())


@pytest.mark.requirement("P26")
async def test_parent_of_a_damaged_run_can_be_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, World().boss()) as service:
        parent = await create(service, "boss")
        (question,) = await asked(service, parent)
        damage(tmp_path, question.run_id, "edited")

        cancelled = await service.run_service.cancel(BOB, parent, "Enough.")
        child = await service.run_service.cancel(BOB, question.run_id, "Enough.")

    assert (cancelled.state, cancelled.is_damaged) == (RunState.CANCELLED, False)
    assert (child.state, child.is_damaged) == (RunState.CANCELLED, True)
