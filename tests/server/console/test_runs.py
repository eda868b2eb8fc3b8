"""The list of runs and the dashboard, as they change while somebody looks; and every page for every reader."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.domain.event import ModelResponded, RunFailed, RunStarted
from interlock.domain.messages import Usage
from interlock.domain.state.lifecycle import RunState
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import RunQuery
from tests.server.console.browser import assert_accessible, assert_no_sideways, is_live, opened_as
from tests.server.console.history import write_history
from tests.server.console.scenes import REFUND, make_scene
from tests.server.console.screenshots import PAGES
from tests.server.console.visits import written
from tests.server.core.index_runs import asking
from tests.server.server_process import Running, console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

_ALEX = Principal(name="user:alex", kind="person", roles=frozenset((Role.ADMIN,)))
#: Of the pages that are shown in the docs.
_OWN = (
    "dashboard",
    "agents",
    "runs",
    "inbox",
    "approval",
    "approval-diff",
    "approval-long",
    "approval-hostile",
    "input",
    "admin",
)


async def test_runs_appear_and_change_their_status_while_somebody_looks(operator: Page, served: Running) -> None:
    await operator.goto("/console/runs")
    await is_live(operator)
    await expect(operator.get_by_text("No runs here.")).to_be_visible()

    run_id = await served.begin("Give Mia her money back.", REFUND)
    row = operator.locator(f'tr[data-key="{run_id}"]')
    await expect(row).to_contain_text("Waiting for approval")
    await served.service.runners.get_inbox("shop").cancel(run_id, "Enough.", by="user:olga")

    await expect(row).to_contain_text("Cancelled")


async def test_agents_lead_to_their_runs(operator: Page, served: Running) -> None:
    await served.ended(await served.begin("Look at A-1", ("lookup", {"order": "A-1"})))
    await operator.goto("/console/")
    await operator.get_by_role("navigation").get_by_role("link", name="Agents").click()
    await expect(operator.get_by_role("heading", name="shop")).to_be_visible()
    await expect(operator.get_by_role("link", name="Look at A-1")).to_contain_text("Completed")
    await is_live(operator)

    await served.questions(await served.begin("Give it back", REFUND))
    await operator.get_by_role("link", name="Waiting now: 1").click()

    await expect(operator).to_have_url(re.compile(r"/console/runs\?agent=shop&status=PAUSED_APPROVAL"))
    await expect(operator.locator("tbody tr")).to_contain_text("Give it back")


async def test_runs_are_filtered_and_come_page_by_page(operator: Page, served: Running) -> None:
    done = await served.begin("Look at A-1", ("lookup", {"order": "A-1"}))
    asks = await served.begin("Give it back", REFUND)
    for at in range(60):
        await served.begin(f"Small talk {at}")
    await served.questions(asks)
    await served.ended(done)

    await operator.goto("/console/runs?status=PAUSED_APPROVAL")
    await expect(operator.locator("tbody tr")).to_have_count(1)
    await operator.get_by_label("Status").select_option("")
    await operator.get_by_label("Words").fill("look at")
    await operator.get_by_role("button", name="Filter").click()
    await expect(operator.locator("tbody tr")).to_have_count(1)
    await expect(operator.locator("tbody")).to_contain_text(done)
    await operator.get_by_role("link", name="Clear").click()
    await expect(operator.locator("tbody tr")).to_have_count(50)
    await operator.get_by_role("link", name="Older").click()
    await expect(operator.locator("tbody tr")).to_have_count(12)
    await expect(operator.locator("tbody tr").last).to_contain_text(done)


async def test_last_weeks_most_expensive_refund_is_found(program: Browser, served: Running) -> None:
    """Days are those of the reader: in Tokyo it is tomorrow already."""
    now = int(datetime(2026, 3, 5, 20, tzinfo=UTC).timestamp()) * 1_000_000_000
    await write_history(served.service.log, now, hours=10 * 24)
    async with opened_as("olga", program, served, timezone_id="Asia/Tokyo", locale="en-GB") as (page, _):
        await page.goto("/console/runs")
        await page.get_by_label("Words").fill("refund order")
        await page.get_by_label("Started from").fill("2026-02-26")
        await page.get_by_label("to", exact=True).fill("2026-03-04")
        await page.get_by_label("Order").select_option("most expensive first")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
        costs = await page.locator('td[data-label="Cost"]').all_inner_texts()
        begins = await page.locator('td[data-label="Started"] time').evaluate_all("all => all.map((at) => at.dateTime)")
        await page.get_by_role("link", name="Duration").click()
        await expect(page.get_by_role("columnheader", name="Duration")).to_have_attribute("aria-sort", "descending")
        await expect(page.get_by_label("Started from")).to_have_value("2026-02-26")

    assert len(costs) > 5
    assert costs == sorted(costs, reverse=True)
    assert min(begins) >= "2026-02-25T15:00"
    assert max(begins) < "2026-03-04T15:00"


async def test_rejected_runs_are_not_among_the_failed(operator: Page, served: Running) -> None:
    run_id = await served.begin("Give it back", REFUND)
    (question,) = await served.questions(run_id)
    await served.service.approval_service.reject(_ALEX, question.action_id, "No.")
    await served.ended(run_id, "failed")

    await operator.goto("/console/runs?status=failed")
    await expect(operator.get_by_text("No run matches the filters.")).to_be_visible()
    await operator.get_by_label("Status").select_option("Rejected")
    await operator.get_by_role("button", name="Filter").click()
    await expect(operator.locator("tbody tr")).to_contain_text("Rejected")
    await operator.get_by_role("link", name="Give it back").click()
    await expect(operator.locator(".entry.end")).to_contain_text("Run rejected")


async def test_hostile_names_in_charts_stay_text(operator: Page, served: Running) -> None:
    agent = "<svg/onload=alert(1)>\u202e" + "W" * 200
    started = RunStarted(schema=1, agent=agent, requester="user:sam", created_by="key:agent")
    asked = asking("c1", "act_1", rule_ids=("<script>alert(1)</script>" + "w" * 200,))
    spent = ModelResponded(usage=Usage(input_tokens=9, cost=1.5))
    rows = written("run_bad", [started, spent, *asked, RunFailed(message="<b>", code="<b>")], at=served.service.now())
    done = served.service.log.append("run_bad", rows)
    assert done is not None
    await done
    await operator.set_viewport_size({"width": 360, "height": 740})
    await operator.goto("/console/")

    await expect(operator.get_by_role("region", name="Rules that ask most")).to_contain_text(
        "<script>alert(1)</script>"
    )
    await expect(operator.get_by_role("region", name="Cost by agent and day").first).to_contain_text("\\u{202e}WW")
    await assert_no_sideways(operator)


async def test_a_run_is_begun_from_the_console(operator: Page, served: Running) -> None:
    await operator.goto("/console/runs")
    await operator.get_by_role("button", name="New run").click()
    form = operator.get_by_role("dialog")
    await form.get_by_label("Task").fill("Say hello.")
    await form.get_by_role("button", name="Start").click()

    await expect(operator).to_have_url(re.compile("/console/runs/run_"))
    (row,) = (await served.service.index.list_runs(RunQuery())).rows
    assert (row.task, row.created_by, row.requester) == ("Say hello.", "user:olga", "user:olga")


async def test_after_the_server_was_away_the_page_is_as_if_it_had_not(program: Browser, tmp_path: Path) -> None:
    async with console_server(tmp_path / "state") as first:
        port = int(first.base.rpartition(":")[2])
        async with opened_as("olga", program, first) as (page, watch):
            watch.expected = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
            await page.goto("/console/")
            await is_live(page)
            await first.stop_listening()
            await expect(page.locator("#live")).to_have_text("reconnecting")
            run_id = await first.begin("Meanwhile.", REFUND)
            (question,) = await first.questions(run_id)
            async with first.listening(port):
                await is_live(page)
                await expect(page.locator(f'a[href*="{question.action_id}"]')).to_be_visible()


async def test_the_dashboard_counts_and_shows_what_happens(operator: Page, served: Running) -> None:
    await operator.goto("/console/")
    await is_live(operator)
    run_id = await served.begin("Give Mia her money back.", REFUND)
    (question,) = await served.questions(run_id)

    await expect(operator.locator(".tile", has_text="Waiting")).to_contain_text("1")
    await expect(operator.get_by_text("Asked for approval: refund")).to_be_visible()
    await served.service.approval_service.reject(_ALEX, question.action_id, "No.")
    await served.ended(run_id, RunState.FAILED)

    await expect(operator.locator(".tile", has_text="Rejected")).to_contain_text("1")
    await expect(operator.locator(".tile", has_text="Failed")).to_contain_text("0")
    await expect(operator.get_by_role("region", name="Errors and refusals")).to_contain_text("user_denied")


@pytest.mark.parametrize("half", [_OWN[::2], (*_OWN[1::2], "approval-confirm", "login")])
async def test_every_page_can_be_used_by_everybody_in_light_and_dark(
    program: Browser, served: Running, half: tuple[str, ...]
) -> None:
    scene = await make_scene(served)
    async with opened_as("alex", program, served) as (page, _):
        for name in half:
            await PAGES[name](page, scene)
            await assert_accessible(page)


async def test_no_page_is_wider_than_a_phone(program: Browser, served: Running) -> None:
    scene = await make_scene(served)
    async with opened_as("alex", program, served, phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        for name in _OWN:
            await PAGES[name](page, scene)
            await assert_no_sideways(page)


async def test_the_theme_that_was_chosen_stays(operator: Page, served: Running) -> None:
    await operator.goto("/console/")
    await operator.get_by_role("button", name="Change between light and dark").click()
    await operator.goto("/console/runs")

    await expect(operator.locator("html")).to_have_attribute("data-theme", "dark")
