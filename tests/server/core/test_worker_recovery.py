"""What a server finds when it starts: runs that were left behind go on, and runs that wait are left alone."""

import asyncio
from pathlib import Path

import pytest

from interlock import Answer, SqliteLog
from interlock.domain.commands import AnswerCommand, command_key, encode_command
from interlock.domain.event import RunCancelled
from interlock.runs.fork import fork
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.runs import indexed_runs
from interlock.storage.event_log import QueuedCommand
from tests.runs.support import facts

from .killed_canceller import cancel_and_be_killed
from .serving import World, approve, asked, bytes_of, create, kinds, scripted, serving, settings_of, status, told, until

YES = Answer(approved=True, by="user:bob")


@pytest.fixture
def world() -> World:
    return World()


async def left_running(log: SqliteLog, world: World, created_by: str) -> str:
    """A run that has begun and that nobody moves on."""
    async with Runner(world.one(), log=log) as runner:
        handle = await runner.start("Do it.", requester="user:ada", created_by=created_by)
        handle.pause()
        await handle.result()
        return handle.run_id


async def test_a_run_that_was_left_behind_goes_on(tmp_path: Path, world: World) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        run_id = await left_running(log, world, "user:ada")

        async with serving(tmp_path, world.one(), log=log) as service:
            await approve(service, (await asked(service, run_id))[0])
            await status(service, run_id, "COMPLETED")

    assert world.changes == ["x"]


async def test_a_run_of_the_command_is_never_touched(tmp_path: Path, world: World) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        run_id = await left_running(log, world, "")
        before = await bytes_of(log)

        async with serving(tmp_path, world.one(), log=log) as service:
            await service.worker.engine.ready.wait()
            await service.worker.engine.wake([run_id])
            other = await create(service, "one")
            await approve(service, (await asked(service, other))[0])
            await status(service, other, "COMPLETED")

        assert [entry for entry in await bytes_of(log) if entry[0] == run_id] == before


@pytest.mark.parametrize("approved", [True, False])
async def test_what_was_answered_while_no_server_was_there_is_gone_on_with(
    tmp_path: Path, world: World, approved: bool
) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, world.one(), log=log) as service:
            run_id = await create(service, "one")
            (row,) = await asked(service, run_id)
        async with Inbox(log, service.artifacts) as desk:
            await desk.deliver(run_id, row.action_id, Answer(approved=approved, by="user:bob"))

        async with serving(tmp_path, world.one(), log=log) as service:
            await status(service, run_id, "COMPLETED" if approved else "FAILED")

    assert world.changes == (["x"] if approved else [])


async def test_one_of_two_answers_is_gone_on_with_and_the_other_still_waited_for(tmp_path: Path, world: World) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, world.two(), log=log) as service:
            run_id = await create(service, "two")
            first, second = await asked(service, run_id, 2)
        async with Inbox(log, service.artifacts) as desk:
            await desk.deliver(run_id, first.action_id, YES)

        async with serving(tmp_path, world.two(), log=log) as service:
            await until(service, lambda: _has_changed(world, "x"))
            await approve(service, second)
            await status(service, run_id, "COMPLETED")

    assert world.changes == ["x", "y"]


async def _has_changed(world: World, what: str) -> bool:
    return what in world.changes


@pytest.mark.parametrize("agent", ["one", "boss"])
async def test_an_answer_that_was_left_for_a_process_that_died_is_not_lost(
    tmp_path: Path, world: World, agent: str
) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, world.one(), world.boss(), log=log) as service:
            run_id = await create(service, agent)
            (row,) = await asked(service, run_id)
        note = AnswerCommand(row.action_id, YES, row.payload_hash)
        assert await log.enqueue(row.run_id, QueuedCommand(command_key(note), encode_command(note)))

        async with serving(tmp_path, world.one(), world.boss(), log=log) as service:
            await status(service, run_id, "COMPLETED")

    assert len(world.changes) == 1


async def test_runs_that_wait_are_the_same_bytes_after_three_restarts(tmp_path: Path, world: World) -> None:
    agents = (world.one(), world.two(), world.boss(), scripted("plain", "Hello."))
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, *agents, log=log) as service:
            for name in ("one", "boss"):
                await asked(service, await create(service, name))
            both = await asked(service, await create(service, "two"), 2)
            await approve(service, both[1])  # behind the first one in line, so it has to wait, too
            done = await create(service, "plain")
            await status(service, done, "COMPLETED")
        await fork(log, done)
        await left_running(log, world, "")
        before = await bytes_of(log)

        for _ in range(3):
            async with serving(tmp_path, *agents, log=log) as service:
                await service.worker.engine.ready.wait()
                for row in (await service.index.list_runs(RunQuery(include_child_runs=True))).rows:
                    if not row.parent_run_id:
                        await service.worker.engine.wake([row.run_id])
        after = await bytes_of(log)

    assert after == before
    assert world.changes == []


async def test_a_run_inside_one_that_is_over_is_ended(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody_left(self: Inbox, ledger: object) -> None:
        """The process died here."""

    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, world.boss(), log=log) as service:
            run_id = await create(service, "boss")
            (row,) = await asked(service, run_id)
        with monkeypatch.context() as dying:
            dying.setattr(Inbox, "cancel_children", nobody_left)
            async with Inbox(log, service.artifacts) as desk:
                await desk.cancel(run_id, "Enough.")

        async with serving(tmp_path, world.boss(), log=log) as service:
            await status(service, row.run_id, "FAILED")

        assert isinstance((await facts(log, row.run_id))[-1], RunCancelled)


@pytest.mark.parametrize("is_down", [False, True])
async def test_parent_continues_when_the_canceller_of_its_child_is_killed(
    tmp_path: Path, world: World, is_down: bool
) -> None:
    """Between the last event of the child run, and the release of its lease."""
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, serving(tmp_path, world.boss(), log=log) as service:
        run_id = await create(service, "boss")
        (question,) = await asked(service, run_id)
        if not is_down:
            await cancel_and_be_killed(question.run_id, str(path))
            await status(service, run_id, "COMPLETED")
    if is_down:
        await cancel_and_be_killed(question.run_id, str(path))
    async with SqliteLog(path) as log, serving(tmp_path, world.boss(), log=log) as service:
        await status(service, run_id, "COMPLETED")

    assert world.changes == []


async def test_two_servers_on_one_log_move_each_run_once(tmp_path: Path, world: World) -> None:
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other_log:
        one = serving(tmp_path, world.one(), world.boss(), log=log, state="first")
        other = serving(tmp_path, world.one(), world.boss(), log=other_log, state="second")
        async with one as first, other as second:
            made = [await create(server, agent) for server in (first, second) for agent in ("one", "boss") * 3]
            for number, run_id in enumerate(made):
                (row,) = await asked(second, run_id)
                await approve((first, second)[number % 2], row)
            for run_id in made:
                await status(first, run_id, "COMPLETED")
            started = [kind for run_id in made for kind in await kinds(log, run_id) if kind == "RunCompleted"]

    assert sorted(world.changes) == ["h"] * 6 + ["x"] * 6
    assert len(started) == len(made)


async def test_what_a_server_left_behind_is_found_by_another_one(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_runs, "_RECOVERY_SECONDS", 0.01)
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as other_log, serving(tmp_path, world.one()) as service:
        await service.worker.engine.ready.wait()
        run_id = await left_running(other_log, world, "user:ada")

        (row,) = await asked(service, run_id)
        await approve(service, row)
        await status(service, run_id, "COMPLETED")

    assert world.changes == ["x"]


async def test_a_run_that_another_process_moves_on_is_left_to_it(tmp_path: Path, world: World) -> None:
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other_log:
        run_id = await left_running(log, world, "user:ada")
        claim = await other_log.acquire(run_id)
        async with serving(tmp_path, world.one(), log=log) as service:
            await service.worker.engine.ready.wait()
            await service.worker.engine.wake([run_id])
            await status(service, await create(service, "one"), "PAUSED_APPROVAL")
            assert (await told(service, run_id))[-1] == (await facts(log, run_id))[-1]
            assert "ApprovalRequested" not in await kinds(log, run_id)

            await other_log.release(claim)
            await service.worker.engine.wake([run_id])
            await asked(service, run_id)


async def test_very_many_runs_that_were_left_behind_all_go_on(tmp_path: Path, world: World) -> None:
    agent = scripted("plain", "Hello.")
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with Runner(agent, log=log) as runner:
            handles = [await runner.start("Do it.", created_by="user:ada") for _ in range(150)]
            for handle in handles:
                handle.pause()
            await asyncio.gather(*(handle.result() for handle in handles))
        async with serving(tmp_path, agent, log=log, settings=settings_of(max_live_runs=10)) as service:

            async def all_done() -> bool:
                return (await service.index.count_runs())["COMPLETED"] == len(handles)

            await until(service, all_done)
