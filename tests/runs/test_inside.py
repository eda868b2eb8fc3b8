"""Only a run that was started by a call is the run inside it."""

from interlock import MemoryLog
from interlock.domain.event import RunCancelled
from interlock.domain.ids import child_run_id
from interlock.runs.runner import Runner

from .support import agent_of, facts_of
from .test_children import World, asking, boss_of


async def test_a_run_that_somebody_else_started_under_the_id_of_the_run_inside_is_not_gone_on_with() -> None:
    log, world = MemoryLog(), World()
    inside = child_run_id("run", "out")
    stranger = agent_of(*asking("y"), tools=[world.change], name="helper")
    other = Runner(stranger, log=log)
    strange = await other.start("Do it.", run_id=inside)
    await strange.result()

    async with Runner(boss_of(agent_of("Mine.", name="helper")), log=log) as runner:
        result = await (await runner.start("Do it.", run_id="run")).result()

    (observation,) = result.observations
    assert not observation.ok
    assert f"the log has a run {inside} already, which was not started by this call" in observation.summary
    assert "Nothing was executed" in observation.summary
    assert (result.text, world.changes) == ("All done.", [])
    assert await facts_of(RunCancelled, log, inside) == []
    assert len((await strange.result()).questions) == 1
    await other.close()
