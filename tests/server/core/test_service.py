"""The server as a whole: ready, on time, signed, and closed when it cannot be made."""

from pathlib import Path
from typing import Any

import pytest

from interlock import LocalTools, MemoryArtifacts, MemoryLog, SqliteLog
from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings, ServerTable
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.webhooks import Webhook, WebhookTrigger
from tests.runs.support import calls

from .people import FakeClock
from .serving import World, create, scripted, serving, settings_of, status, until

PLAIN = ServedAgent(agent=scripted("plain", "Hello."))


async def test_it_is_ready_when_it_has_started_and_not_before_or_after(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        service = Service(ServerSettings(), [PLAIN], log=log, artifacts=MemoryArtifacts(), state_folder=tmp_path)
        assert await service.find_readiness_problems() == ["The server is starting or stopping."]
        async with service:
            assert await service.find_readiness_problems() == []
        assert len(await service.find_readiness_problems()) == 2


@pytest.mark.requirement("R125")
async def test_a_schedule_makes_a_run_when_it_is_due_and_the_same_one_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.core.service._POLL_SECONDS", 0.01)
    clock = FakeClock()
    nightly = Schedule(name="nightly", agent="plain", task="Look.", every_seconds=60)
    settings = ServerSettings(schedules=(nightly,))
    async with SqliteLog(tmp_path / "runs.db") as log:
        for minutes in (1, 0):
            async with serving(tmp_path, PLAIN, log=log, settings=settings, now=clock) as service:
                clock.at += minutes * 61 * 10**9

                async def made(service: Service = service) -> str:
                    rows = (await service.index.list_runs(RunQuery())).rows
                    return rows[0].run_id if rows else ""

                row = await status(service, await until(service, made), "COMPLETED")
        assert await log.run_ids() == [row.run_id]

    assert (row.created_by, row.requester, row.task) == ("schedule:nightly", "", "Look.")


@pytest.mark.requirement("R125")
async def test_a_webhook_makes_a_run_and_the_same_delivery_the_same_one(tmp_path: Path) -> None:
    wish = WebhookTrigger(webhook="orders", agent="plain", task="An order.", run_id="hook-orders-1")
    async with serving(tmp_path, PLAIN) as service:
        made = [await service.start_webhook_run(wish) for _ in range(2)]
        row = await status(service, made[0], "COMPLETED")

    assert made == ["hook-orders-1"] * 2
    assert row.created_by == "webhook:orders"


async def test_what_runs_have_is_signed_by_the_clock_and_when_it_stops(tmp_path: Path) -> None:
    outside = tmp_path / "outside.ndjson"
    settings = settings_of(checkpoint_seconds=3600.0, checkpoint_file=str(outside))
    async with serving(tmp_path, PLAIN, settings=settings) as service:
        run_id = await create(service, "plain")
        await status(service, run_id, "COMPLETED")

    assert run_id in outside.read_text()


async def test_nothing_is_left_open_when_a_server_cannot_be_made(tmp_path: Path) -> None:
    stray = Schedule(name="stray", agent="nobody", task="Look.", every_seconds=60)
    for settings, served in ((ServerSettings(schedules=(stray,)), [PLAIN]), (ServerSettings(), [PLAIN, PLAIN])):
        with pytest.raises(ConfigurationError):
            Service(settings, served, log=MemoryLog(), artifacts=MemoryArtifacts(), state_folder=tmp_path)


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerTable(port=80), "http://127.0.0.1:80"),
        (ServerTable(host="::1", port=80), "http://[::1]:80"),
        (ServerTable(port=443, tls_certificate="c", tls_key="k"), "https://127.0.0.1:443"),
        (ServerTable(public_url="https://x.example/"), "https://x.example"),
    ],
)
async def test_the_address_is_the_one_that_people_know(tmp_path: Path, server: ServerTable, url: str) -> None:
    settings = ServerSettings(server=server)
    service = Service(settings, [PLAIN], log=MemoryLog(), artifacts=MemoryArtifacts(), state_folder=tmp_path)
    await service.stop()

    assert service.public_url == url


async def test_a_server_works_on_a_log_in_memory_too(tmp_path: Path) -> None:
    async with serving(tmp_path, World().one(), PLAIN, log=MemoryLog()) as service:
        await status(service, await create(service, "plain"), "COMPLETED")


@pytest.mark.requirement("P21")
async def test_tools_do_not_write_what_the_server_is_configured_by(tmp_path: Path) -> None:
    files = ("serve.toml", "tls.key", "tls.pem", "hook.secret", "audit.ndjson")
    writes = [(f"c{path}", "write_file", {"path": path, "content": "x"}) for path in files]
    agent = scripted("writer", calls(*writes), "Done.", tools=[LocalTools(tmp_path)])
    settings = ServerSettings(
        server=ServerTable(tls_key=str(tmp_path / "tls.key"), tls_certificate=str(tmp_path / "tls.pem")),
        webhooks=(Webhook(name="hook", agent="writer", task="Look.", secret_file=str(tmp_path / "hook.secret")),),
        forward=(FileDestination(name="audit", path=str(tmp_path / "audit.ndjson")),),
    )
    (tmp_path / "hook.secret").write_text("s" * 64)
    served = ServedAgent(agent=agent, mode=PermissionMode.ACCEPT_EDITS)
    own_paths = [str(tmp_path / "serve.toml")]
    (tmp_path / "state").mkdir()
    parts: dict[str, Any] = {"log": MemoryLog(), "artifacts": MemoryArtifacts(), "state_folder": tmp_path / "state"}
    async with Service(settings, [served], **parts, own_paths=own_paths) as service:
        handle = await service.runners.by_agent["writer"].start("Write them.")
        result = await handle.result()

    assert [each.code for each in result.observations] == ["policy_denied"] * len(files)
