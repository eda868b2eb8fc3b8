"""What was checked before a run was forked says nothing about the world that the fork goes on in."""

import pytest

from interlock import MemoryArtifacts, MemoryLog, Runner, fork, replay_model
from interlock.agent.agent import Agent
from interlock.domain.event import CallObserved, decode_event
from interlock.models.scripted import ScriptedTurn
from interlock.storage.event_log import EventLog

from .support import agent_of, calls, run_of
from .test_verification import CHECKED, CLAIM, EDITED, checks, edit

AGAIN = calls(("again", "check", {}))


def claiming(*turns: ScriptedTurn) -> Agent:
    return agent_of(*turns, CLAIM, CLAIM, tools=[checks(True), edit])


async def forked_after_a_check(log: EventLog, artifacts: MemoryArtifacts) -> str:
    """The original changes a file after that."""
    whole = await run_of(claiming(CHECKED, EDITED), log=log, artifacts=artifacts)
    events = [decode_event(entry) for entry in await log.read(whole.run_id)]
    checked = next(event.seq for event in events if isinstance(event.fact, CallObserved))
    return await fork(log, whole.run_id, checked)


@pytest.mark.requirement("P14", "R268")
@pytest.mark.parametrize(
    ("turns", "status"), [((CHECKED,), "stale"), ((CHECKED, AGAIN), "passed")], ids=["not run again", "run again"]
)
async def test_a_test_that_passed_before_the_fork_counts_once_it_was_run_again(
    turns: tuple[ScriptedTurn, ...], status: str
) -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    name = await forked_after_a_check(log, artifacts)

    async with Runner(claiming(*turns), log=log, artifacts=artifacts) as runner:
        result = await (await runner.open(name)).result()
    replayed = await replay_model(await log.read(name), claiming(*turns), artifacts)

    assert result.verification.status == status
    assert bool(result.conflict) == (status == "stale")
    assert ("forked from another one" in result.verification.message) == (status == "stale")
    assert replayed.same, replayed.words
