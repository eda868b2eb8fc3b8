"""Schedules and webhooks that people pause, and what triggers did not start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.server.core.database.interface import Database
from interlock.server.core.errors import ConflictError, ForbiddenError, NotFoundError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.server.core.switches import Switches
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.refusals import TriggerRefusal, TriggerRefusals
from interlock.server.core.triggers.schedules import DueRun, Schedules
from interlock.server.core.triggers.webhook_signature import build_signed_headers
from interlock.server.core.triggers.webhooks import Webhook, WebhookRejection, WebhookTrigger
from tests.logs import keep_in_postgres
from tests.postgres.server import PostgresServer

from .people import HOUR, SECOND, FakeClock, opened
from .serving import ADA, BOT, scripted, serving, status

HOURLY = Schedule(name="hourly", agent="plain", task="Look.", every_seconds=3_600)
HOOK = Webhook(name="orders", agent="plain", task="Handle {{payload}}.", secret_env="HOOK")
SECRET = "a-secret-of-some-length"
AUDITOR = Principal(name="user:aude", kind="person", roles=frozenset({Role.AUDITOR}))
STRANGER = Principal(name="user:eve", kind="person", roles=frozenset({Role.OPERATOR}), agents=frozenset({"other"}))


@pytest.fixture
def db(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


async def deliver(service: Service, delivery: str, secret: str = SECRET) -> WebhookTrigger | WebhookRejection:
    now = service.now()
    headers = build_signed_headers(secret, now // SECOND, delivery, b"{}")
    return await service.trigger_service.accept_delivery("orders", headers, b"{}", now)


async def test_paused_schedule_passes_over_what_was_due(db: Database) -> None:
    clock, started = FakeClock(), list[str]()

    async def start(due: DueRun) -> None:
        started.append(due.run_id)

    clock.at -= clock.at % HOUR
    schedules, switches = Schedules(db, [HOURLY], start, clock), Switches(db, clock)
    await schedules.open()
    await switches.switch_off("schedule", "hourly", by="user:ada", reason="Not now.")
    for _ in range(3):
        clock.at += HOUR
        assert await schedules.start_due_runs(clock.at) == []
    await switches.switch_on("schedule", "hourly", by="user:ada", reason="Now.")
    again = Schedules(db, [HOURLY], start, clock)
    await again.open()
    assert await again.start_due_runs(clock.at + HOUR - 1) == []
    clock.at += HOUR
    assert len(await again.start_due_runs(clock.at)) == 1
    assert started == [f"sched-hourly-{clock.at // SECOND}"]


async def test_refusals_are_counted_by_code(db: Database) -> None:
    clock = FakeClock()
    refusals, elsewhere = TriggerRefusals(db, clock), TriggerRefusals(db, clock)
    for _ in range(100):
        await refusals.record("webhook", "orders", "bad_signature", "No signature.")
    clock.at += SECOND
    await elsewhere.record("webhook", "orders", "bad_signature", "No signature.")
    await refusals.record("webhook", "orders", "too_old", "Too old.\ud800")
    first, last = clock.at - SECOND, clock.at
    assert await refusals.list("webhook") == {
        "orders": (
            TriggerRefusal(code="bad_signature", message="No signature.", count=101, first_at=first, last_at=last),
            TriggerRefusal(code="too_old", message="Too old.\\u{d800}", count=1, first_at=last, last_at=last),
        )
    }
    assert await refusals.list("schedule") == {}


async def test_paused_webhook_refuses_signed_deliveries(tmp_path: Path) -> None:
    settings = ServerSettings(webhooks=(HOOK,))
    async with serving(tmp_path, scripted("plain", "Hi."), settings=settings, environ={"HOOK": SECRET}) as service:
        accepted = await deliver(service, "one")
        assert isinstance(accepted, WebhookTrigger)
        run_id = await service.start_webhook_run(accepted)
        await status(service, run_id, "COMPLETED")
        assert await service.trigger_service.pause(ADA, "webhook", "orders", "Too many.")
        found = [await deliver(service, "two"), await deliver(service, "three", "another-secret-of-theirs")]
        (row,) = await service.trigger_service.list_webhooks(AUDITOR)
        assert await service.trigger_service.resume(ADA, "webhook", "orders", "Fine.")
        assert isinstance(await deliver(service, "two"), WebhookTrigger)
        journal = [each.action for each in await service.audit_log.read()]

    assert [each.code for each in found if isinstance(each, WebhookRejection)] == ["webhook_paused", "bad_signature"]
    assert {each.code for each in row.refusals} == {"webhook_paused", "bad_signature"}
    assert row.last_run is not None
    assert (row.last_run.run_id, row.last_run.status) == (run_id, "COMPLETED")
    assert row.paused is not None
    assert (row.paused.actor, row.paused.reason) == ("user:ada", "Too many.")
    assert journal == ["webhook.paused", "webhook.resumed"]


async def test_failed_starts_are_listed_with_their_code(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.at -= clock.at % HOUR
    settings = ServerSettings(schedules=(HOURLY,), webhooks=(HOOK,))
    agent = scripted("plain", "Hi.")
    async with serving(tmp_path, agent, settings=settings, environ={"HOOK": SECRET}, now=clock) as service:
        await service.agent_switches.switch_off(ADA, "plain", "Stop.")
        clock.at += HOUR
        await service.schedules.start_due_runs(clock.at)
        trigger = await deliver(service, "one")
        assert isinstance(trigger, WebhookTrigger)
        with pytest.raises(ConflictError):
            await service.start_webhook_run(trigger)
        (schedule,) = await service.trigger_service.list_schedules(ADA)
        (webhook,) = await service.trigger_service.list_webhooks(ADA)
    assert [each.code for each in schedule.refusals] == ["agent_switched_off"]
    assert schedule.problem == "Agent plain was switched off by user:ada: Stop. Nothing was started."
    assert [each.code for each in webhook.refusals] == ["agent_switched_off"]


async def test_only_owners_see_and_pause_triggers(tmp_path: Path) -> None:
    settings = ServerSettings(schedules=(HOURLY,))
    async with serving(tmp_path, scripted("plain", "Hi."), settings=settings) as service:
        triggers = service.trigger_service
        assert await triggers.list_schedules(STRANGER) == []
        for who, error in ((STRANGER, NotFoundError), (AUDITOR, ForbiddenError), (BOT, ForbiddenError)):
            with pytest.raises(error):
                await triggers.pause(who, "schedule", "hourly", "Why not.")
        with pytest.raises(NotFoundError):
            await triggers.pause(ADA, "webhook", "hourly", "Why not.")
        assert await service.switches.list("schedule") == {}


async def test_pause_holds_on_every_server(tmp_path: Path, postgres: PostgresServer) -> None:
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    clock = FakeClock()
    clock.at -= clock.at % HOUR
    settings, agent = ServerSettings(schedules=(HOURLY,)), scripted("plain", "Hi.")
    async with (
        serving(tmp_path, agent, settings=settings, now=clock) as here,
        serving(tmp_path, agent, settings=settings, now=clock, state="other") as there,
    ):
        await there.trigger_service.pause(ADA, "schedule", "hourly", "Not now.")
        (row,) = await here.trigger_service.list_schedules(ADA)
        clock.at += HOUR
        assert await here.schedules.start_due_runs(clock.at) == []
    assert row.paused is not None
    assert row.next_due_at == 0
