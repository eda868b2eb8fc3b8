"""What a look at a run says about the next one."""

from pathlib import Path

import pytest

from interlock import Agent, Inbox, Runner
from interlock.engine.advance import RunAdvancer
from interlock.engine.interface import NextLook
from interlock.storage.memory import MemoryLog
from interlock.testing import ScriptedModel, ScriptedTurn

from .clerk import clerk


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))


async def test_run_is_advanced_until_it_waits_and_until_it_is_over() -> None:
    log = MemoryLog()
    async with Runner(clerk(), log=log) as runner, Inbox(log) as inbox:
        advancer, run_id = RunAdvancer({"clerk": runner}), await runner.submit("Do it.")

        look = await advancer.advance(run_id)
        assert look == NextLook(seq=len(await log.read(run_id)))
        assert await advancer.advance(run_id) == look, "nothing happened since"
        (question,) = await inbox.pending(run_id)
        await inbox.approve(question, by="ana")
        assert await advancer.advance(run_id) is None


async def test_run_of_another_process_is_left_to_it() -> None:
    log = MemoryLog()
    async with Runner(clerk(), log=log) as runner:
        advancer, run_id = RunAdvancer({"clerk": runner}), await runner.submit("Do it.")
        await log.acquire(run_id)

        assert await advancer.advance(run_id) == NextLook(is_left=True)


async def test_run_of_an_unknown_agent_is_tried_again_later() -> None:
    log = MemoryLog()
    other = Agent(name="other", provider=ScriptedModel([ScriptedTurn(text="Done.")]))
    async with Runner(clerk(), log=log) as runner, Runner(other, log=log) as stranger:
        advancer, run_id = RunAdvancer({"other": stranger}), await runner.submit("Do it.")
        looks = [await advancer.advance(run_id) for _ in range(10)]
        recorded = len(await log.read(run_id))

    delays = [0.0 if look is None else look.retry_seconds for look in looks]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert recorded == 2


async def test_paused_run_is_left_to_others() -> None:
    log = MemoryLog()
    async with Runner(clerk(), log=log) as runner:
        advancer, run_id = RunAdvancer({"clerk": runner}), await runner.submit("Do it.")
        advancer.pause()

        look = await advancer.advance(run_id)
        assert look is not None
        assert look.is_left
        assert not await log.lease_holder(run_id)
