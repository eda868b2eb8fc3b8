"""A run whose process died comes out in a replay as it was recorded, wherever that was."""

from collections.abc import Sequence

import pytest

from interlock import MemoryLog
from interlock.domain.decision import FailSafeConfig
from interlock.domain.event import LogEntry
from interlock.replay.model import replay_model
from interlock.runs.runner import Runner
from interlock.storage.event_log import Lease
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.replay.replayed import People, World, agent


class Commits(MemoryLog):
    """Remembers what was durable when."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
        super().append(run_id, entries, lease)
        self.commits.append(entries[-1].seq)


@pytest.mark.requirement("R269")
@pytest.mark.parametrize("policy", ["tell", "ask"])
async def test_a_run_that_was_killed_at_any_commit_and_resumed_comes_out_the_same(policy: str) -> None:
    fail_safe = FailSafeConfig(unknown_outcome_policy="ask" if policy == "ask" else "tell")
    log, artifacts = Commits(), MemoryArtifacts()
    async with Runner(agent(), log=log, artifacts=artifacts, interaction=People()) as runner:
        handle = await runner.start("Fix it.")
        await handle.result()
    entries = await log.read(handle.run_id)

    for end in log.commits[:-1]:
        killed = MemoryLog()
        killed.append(handle.run_id, entries[: end + 1])
        again = agent(fail_safe=fail_safe)
        async with Runner(again, log=killed, artifacts=artifacts, interaction=People()) as runner:
            await (await runner.open(handle.run_id)).result()
        world = World()

        resumed = agent(tools=world.tools(), fail_safe=fail_safe)
        replay = await replay_model(await killed.read(handle.run_id), resumed, artifacts)

        assert replay.same, f"killed after {end}: {replay.words}"
        assert replay.was.end == "completed"
        assert world.done == []
    assert len(log.commits) > 10
