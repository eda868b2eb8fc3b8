"""A run that can never continue fails and says why; one that cannot continue now is tried again and says why."""

import asyncio
from collections.abc import AsyncGenerator
from errno import ENOSPC
from pathlib import Path

import pytest

from interlock import Agent, ServedAgent, SqliteLog, tool
from interlock.domain.errors import ArtifactError
from interlock.domain.event import RunFailed
from interlock.domain.tool import CallContext
from interlock.models.interface import ModelEvent, ModelRequest, StreamFinished
from interlock.models.scripted import ScriptedModel, ScriptedTurn
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.service import Service
from tests.patience import HANG_SECONDS, eventually
from tests.runs.support import calls
from tests.server.core.test_worker_recovery import left_running

from .serving import ADA, World, approve, asked, breath, create, scripted, serving, status, told

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN}))


class Broken:
    """A provider that raises what providers should not raise."""

    name = "broken"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise RuntimeError("no such key: sk_live_x")
        yield StreamFinished()

    async def close(self) -> None:
        """Do nothing."""


@tool(risk="read", raise_on_error=True)
def explode() -> str:
    """Explode."""
    raise ValueError("boom")


def _raise(context: CallContext) -> str:
    raise KeyError("no instructions")


STUCK = {
    "provider raises": (Agent(name="stuck", provider=Broken()), "RuntimeError: no such key"),
    "instructions raise": (
        Agent(name="stuck", provider=ScriptedModel([ScriptedTurn(text="Hello.")]), instructions=_raise),
        "KeyError: 'no instructions'",
    ),
    "tool raises": (scripted("stuck", calls(("c1", "explode", {})), "Done.", tools=[explode]), "boom"),
}


@pytest.mark.requirement("P25")
@pytest.mark.parametrize("why", STUCK)
async def test_run_that_cannot_continue_fails_with_an_error_event(tmp_path: Path, why: str) -> None:
    agent, message = STUCK[why]
    async with serving(tmp_path, agent) as service:
        run_id = await create(service, "stuck")
        row = await status(service, run_id, "FAILED")
        events = (await service.run_queries.list_run_events(ADA, run_id)).events
        last = (await told(service, run_id))[-1]

    assert row.message.startswith("The run cannot continue: ")
    assert message in row.message
    assert isinstance(last, RunFailed)
    assert [event.data["message"] for event in events if event.type == "ERROR"] == [row.message]


@pytest.mark.requirement("P25")
async def test_run_of_a_removed_agent_fails(tmp_path: Path) -> None:
    world, plain = World(), scripted("plain", "Hello.")
    async with serving(tmp_path, world.one(), plain) as service:
        waiting = await create(service, "one")
        await asked(service, waiting)
    async with SqliteLog(tmp_path / "runs.db") as log:
        running = await left_running(log, world, "user:ada")

    async with serving(tmp_path, plain) as service:
        row = await status(service, running, "FAILED")
        assert row.message == "The run cannot continue: This server no longer serves its agent 'one'."
        (question,) = await asked(service, waiting)
        await approve(service, question)
        assert (await status(service, waiting, "FAILED")).message == row.message

    assert world.changes == []


async def test_run_of_an_agent_of_another_server_is_left_alone(tmp_path: Path) -> None:
    world, plain = World(), scripted("plain", "Hello.")
    async with SqliteLog(tmp_path / "runs.db") as log, serving(tmp_path, plain, log=log) as service:
        run_id = await left_running(log, world, "user:ada")
        await service.worker.engine.wake([run_id])
        await status(service, await create(service, "plain"), "COMPLETED")
        assert (await service.index.list_runs(RunQuery(statuses=frozenset({"RUNNING"})))).rows[0].run_id == run_id


def _fail_artifacts(service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[bytes]:
    """Return what could not be kept, as it comes."""
    refused = list[bytes]()

    def keep(content: bytes) -> str:
        refused.append(content)
        raise error

    monkeypatch.setattr(service.artifacts, "keep", keep)
    return refused


def _disk_full() -> ArtifactError:
    error = ArtifactError("an artifact: No space left on device")
    error.__cause__ = OSError(ENOSPC, "No space left on device")
    return error


async def test_artifact_error_that_passes_only_delays_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    async with serving(tmp_path, world.one(instructions="Do it.")) as service:
        _fail_artifacts(service, monkeypatch, _disk_full())
        run_id = await create(service, "one")
        await _waits(service, run_id)
        row = await service.run_queries.get_run(ADMIN, run_id)
        listed = await service.run_queries.list_runs(ADMIN, RunQuery())
        monkeypatch.undo()
        await service.worker.engine.wake([run_id])

        await approve(service, (await asked(service, run_id))[0])
        done = await status(service, run_id, "COMPLETED")

    assert (row.status, row.message) == (
        "RUNNING",
        "Waiting to try again: an artifact: No space left on device",
    )
    assert listed.rows == (row,)
    assert done.message == "Done."
    assert world.changes == ["x"]
    assert caplog.text.count("could not continue, and is tried again") == 1


async def test_error_that_never_passes_fails_the_run_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.engine.advance._MIN_RETRY_SECONDS", 0.001)
    async with serving(tmp_path, World().one(instructions="Do it.")) as service:
        _fail_artifacts(service, monkeypatch, ArtifactError("there is no artifact sha256:0"))
        run_id = await create(service, "one")
        row = await status(service, run_id, "FAILED")

    assert row.message == "The run cannot continue: there is no artifact sha256:0"


async def test_full_disk_never_fails_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.engine.advance._MIN_RETRY_SECONDS", 0.001)
    monkeypatch.setattr("interlock.engine.advance._MAX_ATTEMPTS", 2)
    async with serving(tmp_path, World().one(instructions="Do it.")) as service:
        with monkeypatch.context() as full:
            refused = _fail_artifacts(service, full, _disk_full())
            run_id = await create(service, "one")
            await eventually(lambda: len(refused) > 5)
        await asked(service, run_id)


async def _waits(service: Service, run_id: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while run_id not in await service.worker.engine.waiting_reasons([run_id]):
            await breath()


async def test_run_of_another_folder_waits_for_the_configuration(tmp_path: Path) -> None:
    """A wrong setting can be corrected, so the run is kept and says why it waits."""
    world = World()
    (tmp_path / "right").mkdir()
    right = ServedAgent(agent=world.one(), workspace=str(tmp_path / "right"))
    async with serving(tmp_path, right) as service:
        run_id = await create(service, "one")
        await asked(service, run_id)

    async with serving(tmp_path, world.one()) as service:
        await approve(service, (await asked(service, run_id))[0])
        await _waits(service, run_id)
        shown = (await service.run_queries.get_run(ADMIN, run_id)).message
        assert shown == f"Waits for a worker with the folder {str(tmp_path / 'right')!r}."
    async with serving(tmp_path, right) as service:
        await status(service, run_id, "COMPLETED")
    assert world.changes == ["x"]
