"""A fork and the run that it comes from do not touch each other, and nobody goes on with a fork by accident."""

import pytest

from interlock import Agent, MemoryArtifacts, MemoryLog, RunHandle, fork
from interlock.domain.event import InvocationSuspended, RunCancelled
from interlock.domain.state.lifecycle import RunState
from interlock.runs.runner import Runner

from .support import agent_of, calls, facts_of, run_of, start
from .test_children import World, pair
from .test_left_behind import HOLDS
from .test_stopping import Long


async def waiting_inside(log: MemoryLog, world: World) -> tuple[Runner, RunHandle, str]:
    """A run whose call waits for a run inside it, in which a person is asked."""
    runner, handle = await start(pair(world), log)
    (question,) = (await handle.result()).questions
    return runner, handle, question.run_id


@pytest.mark.parametrize("end", ["cancelled", "completed"])
async def test_the_end_of_a_fork_leaves_the_run_inside_the_original_as_it_is(end: str) -> None:
    log, world = MemoryLog(), World()
    runner, handle, inside = await waiting_inside(log, world)
    await fork(log, handle.run_id, new_run_id="forked")

    async with Runner(pair(world), log=log, artifacts=MemoryArtifacts()) as other:
        if end == "cancelled":
            await other.inbox.cancel("forked", "No need.")
        else:
            assert (await (await other.open("forked")).result()).state is RunState.COMPLETED
    assert await facts_of(RunCancelled, log, inside) == []

    (question,) = (await handle.result()).questions
    await handle.decide(question.action_id, approved=True)
    await handle.resume()
    assert ((await handle.result()).text, world.changes) == ("All done.", ["x"])
    await runner.close()


async def test_nobody_is_asked_in_a_fork_what_is_asked_inside_the_original() -> None:
    log, world = MemoryLog(), World()
    runner, handle, inside = await waiting_inside(log, world)
    await fork(log, handle.run_id, new_run_id="forked")

    (told,) = await facts_of(InvocationSuspended, log, "forked")
    ledger = await runner.inbox.load_ledger("forked")

    assert told.child_run_id == inside
    assert await runner.readiness.open_questions(ledger) == []
    assert not await runner.readiness.is_waiting_for(ledger, inside)
    assert await runner.readiness.is_waiting_for(await runner.inbox.load_ledger(handle.run_id), inside)
    await runner.close()


async def test_starting_up_does_not_go_on_with_a_fork_before_somebody_opened_it() -> None:
    log, artifacts, world = MemoryLog(), MemoryArtifacts(), World()

    def changes() -> Agent:
        return agent_of(calls(("a", "change", {"what": "x"})), "Done.", tools=[world.change])

    waiting = await run_of(changes(), log=log, artifacts=artifacts)
    for at in range(len(await log.read(waiting.run_id))):
        await fork(log, waiting.run_id, at, new_run_id=f"forked-{at}")
        before = await log.read(f"forked-{at}")
        async with Runner(changes(), log=log, artifacts=artifacts) as runner:
            assert await runner.recover() == []
        assert await log.read(f"forked-{at}") == before


async def test_starting_up_goes_on_with_a_fork_that_somebody_opened_and_left() -> None:
    log, artifacts, long = MemoryLog(), MemoryArtifacts(), Long()
    whole = await run_of(agent_of("Done."), log=log, artifacts=artifacts)
    await fork(log, whole.run_id, 1, new_run_id="forked")
    async with Runner(agent_of(HOLDS, "Done.", tools=[long.tool]), log=log, artifacts=artifacts) as runner:
        await runner.open("forked")
        await long.running.wait()

    async with Runner(agent_of(HOLDS, "Done.", tools=[Long().tool]), log=log, artifacts=artifacts) as runner:
        (handle,) = await runner.recover()
        assert (handle.run_id, (await handle.result()).text) == ("forked", "Done.")
