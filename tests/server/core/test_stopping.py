"""All runs of an agent are ended: those that begin meanwhile too, and one that does not end keeps nobody waiting."""

import asyncio
from pathlib import Path

import pytest

from interlock.domain.errors import LogCorruptError
from interlock.domain.state.lifecycle import RunState
from interlock.server.core.index.rows import RunRow
from interlock.server.core.runs import agent_stop
from interlock.server.core.runs.agent_stop import AgentStop
from tests.server.core.serving import ADA, World, asked, create, serving


async def test_a_run_that_does_not_end_is_named_and_the_others_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_stop, "STOP_SECONDS", 0.5)
    async with serving(tmp_path, World().one()) as service:
        runs = [await create(service, "one", ADA) for _ in range(4)]
        for run_id in runs:
            await asked(service, run_id)
        never = asyncio.Event()

        async def end(row: RunRow) -> RunRow:
            if row.run_id == runs[0]:
                await never.wait()
            if row.run_id == runs[1]:
                raise LogCorruptError("its log is damaged")
            return await service.run_service.cancel(ADA, row.run_id, "Stop.")

        stopped = await AgentStop(service.index, "one", end).cancel_all()
        never.set()
    assert stopped.cancelled == 2
    assert set(stopped.unfinished) == set(runs[:2])


async def test_runs_that_begin_while_the_others_are_ended_are_ended_too(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one()) as service:
        first = await create(service, "one", ADA)
        late = list[str]()

        async def end(row: RunRow) -> RunRow:
            if row.run_id == first:
                late.append(await create(service, "one", ADA))
            return await service.run_service.cancel(ADA, row.run_id, "Stop.")

        stopped = await AgentStop(service.index, "one", end).cancel_all()
        states = [row.state for run_id in (first, *late) if (row := await service.index.get_run(run_id))]
    assert (stopped.cancelled, stopped.unfinished) == (2, ())
    assert states == [RunState.CANCELLED] * 2


async def test_a_run_inside_a_call_of_another_agent_is_stopped_with_its_own_agent(tmp_path: Path) -> None:
    async with serving(tmp_path, World().boss()) as service:
        run_id = await create(service, "boss", ADA)
        (row,) = await asked(service, run_id)
        stopped = await service.run_service.stop_agent(ADA, "helper", "Stop.")
    assert row.agent == "helper"
    assert stopped.cancelled == 1
