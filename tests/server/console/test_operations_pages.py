"""Agents, triggers, sinks and one's own account in a real browser."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.audit_sinks.positions import DeadLetter, ForwardPosition, ForwardPositionStore
from interlock.server.core.settings import ServerSettings
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.webhooks import Webhook
from tests.server.console.browser import assert_accessible, assert_no_sideways
from tests.server.console.visits import Stage, visit
from tests.server.server_process import PASSWORD, console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)> \u202etxt"
NIGHTLY = Schedule(name="nightly", agent="shop", task="Close the books.", cron="0 3 * * *", timezone="Europe/Berlin")
MINUTELY = Schedule(name="every-day", agent="shop", task="Look.", every_seconds=86_400)
ORDERS = Webhook(name="orders", agent="shop", task="Handle {{payload}}.", secret_env="HOOK_SECRET")


async def answer_dialog(page: Page, reason: str, button: str) -> None:
    dialog = page.locator("dialog[open]")
    await dialog.get_by_label("Reason").fill(reason)
    async with page.expect_navigation():
        await dialog.get_by_role("button", name=button, exact=True).click()


@pytest_asyncio.fixture(loop_scope="session")
async def stage(program: Browser, tmp_path: Path) -> AsyncGenerator[Stage]:
    settings = ServerSettings(
        schedules=(NIGHTLY, MINUTELY),
        webhooks=(ORDERS,),
        forward=(FileDestination(name="siem", path=str(tmp_path / "events.ndjson")),),
    )
    environ = {"HOOK_SECRET": "a-secret-of-some-length"}
    async with console_server(tmp_path / "state", settings=settings, options={"environ": environ}) as served:
        yield Stage(served, program)


async def test_agent_is_switched_off_and_on(stage: Stage) -> None:
    run_id = await stage.house.begin("Refund it.", ("refund", {"order": "A-1", "amount": 5.0}))
    await stage.house.questions(run_id)
    async with visit(stage, "olga", "/console/agents") as (page, _):
        card = page.locator("section.card").filter(has=page.get_by_role("heading", name="shop"))
        await expect(card.locator("header .chip")).to_have_text("On")
        await expect(page.get_by_role("button", name="Switch all off")).to_have_count(0)
        await card.get_by_role("button", name="Switch off shop").click()
        await assert_accessible(page)
        await answer_dialog(page, f"Refunds too much. {HOSTILE}", "Switch off")

        await expect(card.locator("header .chip")).to_have_text("Switched off")
        await expect(card.locator(".note.danger")).to_contain_text("Refunds too much. <img src=x onerror=alert(1)>")
        row = await stage.house.service.index.get_run(run_id)
        assert row is not None
        assert row.is_over

        refused = await (await stage.house.person("olga")).get("/v1/agents")
        assert refused.json()["agents"][0]["switched_off"]["by"] == "user:olga"
        await card.get_by_role("button", name="Switch on shop").click()
        await answer_dialog(page, "Fixed.", "Switch on")
        await expect(card.locator("header .chip")).to_have_text("On")


async def test_admin_holds_every_agent(stage: Stage) -> None:
    run_id = await stage.house.begin("Refund it.", ("refund", {"order": "A-1", "amount": 5.0}))
    await stage.house.questions(run_id)
    async with visit(stage, "alex", "/console/agents") as (page, _):
        await page.get_by_role("button", name="Switch all off").click()
        await page.get_by_label("Hold them where they are").check()
        await answer_dialog(page, "Incident 7.", "Switch off")
        await expect(page.locator("main > .note.danger")).to_contain_text("Every agent is switched off by user:alex")
        row = await stage.house.service.index.get_run(run_id)
        assert row is not None
        assert row.status == "PAUSED_APPROVAL"
        await page.get_by_role("button", name="Switch all on").click()
        await answer_dialog(page, "Over.", "Switch on")
        await expect(page.get_by_role("button", name="Switch all off")).to_be_visible()


async def test_schedule_and_webhook_are_paused(stage: Stage) -> None:
    client = await stage.house.client("")
    assert (await client.post("/hooks/orders", json={})).status_code == 401
    async with visit(stage, "olga", "/console/triggers") as (page, _):
        row = page.locator("[data-schedule=nightly]")
        await expect(row).to_contain_text("0 3 * * *")
        await expect(page.get_by_role("region", name="Not started by webhooks")).to_contain_text("bad_signature")
        await row.get_by_role("button", name="Pause nightly").click()
        await assert_accessible(page)
        await answer_dialog(page, HOSTILE, "Pause")
        await expect(row).to_contain_text("Paused")
        await expect(row).to_contain_text("never")
        await row.get_by_role("button", name="Resume nightly").click()
        await answer_dialog(page, "Again.", "Resume")
        await expect(row).to_contain_text("Active")
        await page.get_by_role("button", name="Pause orders").click()
        await answer_dialog(page, "Too many.", "Pause")
        await expect(page.locator("[data-webhook=orders]")).to_contain_text("Paused")


async def test_dead_letters_are_sent_again(stage: Stage) -> None:
    run_id = await stage.house.begin("Where is it?", ("lookup", {"order": "A-1"}))
    await stage.house.ended(run_id)
    store = ForwardPositionStore(stage.house.service.database, "siem")
    letters = [
        DeadLetter(position=at, run_id=run_id, seq=at - 1, problem=f"400: {HOSTILE}", at=stage.house.service.now())
        for at in (1, 2, 3)
    ]
    await store.save(ForwardPosition(), letters)
    async with visit(stage, "audrey", "/console/sinks") as (page, _):
        await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
        await expect(page.locator("[data-position]")).to_have_count(3)
    async with visit(stage, "alex", "/console/sinks") as (page, _):
        await assert_accessible(page)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Retry event at 2").click()
        await expect(page.locator("[data-position]")).to_have_count(2)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Retry all").click()
        await expect(page.locator("[data-position]")).to_have_count(0)
        await expect(page.get_by_role("heading", name="Retention", exact=True)).to_be_visible()
    async with visit(stage, "olga") as (page, _):
        answer = await page.goto("/console/sinks")
        assert answer is not None
        assert answer.status == 403


async def test_other_sessions_are_ended(stage: Stage) -> None:
    other = await stage.house.person("olga")
    async with visit(stage, "olga", "/console/account") as (page, _):
        await expect(page.locator("tr", has_text="This one")).to_have_count(1)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Sign out everywhere else").click()
        await expect(page.get_by_role("button", name="Sign out everywhere else")).to_have_count(0)
        assert (await other.get("/v1/me")).status_code == 401

        await page.get_by_label("Current password").fill("wrong")
        await page.get_by_label("New password").fill("another password of hers")
        await page.get_by_role("button", name="Change the password").click()
        await expect(page.locator("[data-password] [data-problem]")).to_have_text("current: is not your password")
        await page.get_by_label("Current password").fill(PASSWORD)
        await page.get_by_role("button", name="Change the password").click()
        await page.wait_for_url("**/console/login")


@pytest.mark.parametrize("path", ["agents", "triggers", "sinks", "account"])
async def test_pages_fit_a_phone(stage: Stage, path: str) -> None:
    for theme in ("light", "dark"):
        async with visit(stage, "alex", f"/console/{path}", phone=True, theme=theme) as (page, _):
            await assert_no_sideways(page)
            await assert_accessible(page)
