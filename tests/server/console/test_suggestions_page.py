"""Suggested rules in a real browser: found in what people answered, and shown, never applied."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from interlock import Rule, RulePolicy
from interlock.server.core.runs.approval_service import Approval
from tests.server.console.browser import assert_accessible, assert_no_sideways
from tests.server.console.visits import OPERATOR, Stage, visit
from tests.server.server_process import Running, console_server, demo_agent

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = "</textarea><script>alert(1)</script>\u202e" + "W" * 300
MONEY = Rule(id="money-needs-a-person", verdict="ask", tools="refund")
CALLS = (("note", {"order": "7", "text": HOSTILE}), ("refund", {"order": "7", "amount": 5.5}))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on(program: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """A server where people approved the same three times."""
    agents = [demo_agent(policy=RulePolicy([MONEY], default="ask"))]
    async with console_server(tmp_path_factory.mktemp("state"), agents=agents) as served:
        for _ in range(3):
            await approve_all(served)
        yield Stage(served, program)


async def approve_all(served: Running) -> None:
    run_id = await served.begin("Do both.", *CALLS)
    for row in await served.questions(run_id, len(CALLS)):
        await served.service.approval_service.approve(OPERATOR, row.action_id, Approval(payload_hash=row.payload_hash))
    await served.ended(run_id)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_suggested_rules_are_shown_to_copy(on: Stage, scheme: str) -> None:
    async with visit(on, "olga", "/console/policy") as (page, _):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.get_by_role("link", name="Suggestions").click()
        card = page.get_by_role("region", name="Suggested rules for shop")
        await expect(card).to_contain_text("Would have answered 3 of 6 recorded questions, and none that a person")
        text = await card.get_by_role("textbox").input_value()
        assert text.startswith("- id: suggested-")
        assert "tools: note" in text
        assert "\\u202E" in text
        row = page.get_by_role("region", name="Rules that asked").get_by_role("row").last
        assert (await row.inner_text()).split() == ["money-needs-a-person", "3", "3", "0"]
        await assert_accessible(page)


async def test_a_copied_suggestion_answers_in_a_backtest(on: Stage) -> None:
    async with visit(on, "audrey", "/console/policy/suggestions") as (page, _):
        text = await page.get_by_role("textbox").input_value()
        await page.goto("/console/policy")
        rules = "".join(f"  {line}\n" for line in text.splitlines())
        await page.get_by_label("Policy", exact=True).fill(f"version: 1\ndefault: ask\nrules:\n{rules}")
        await page.get_by_role("button", name="Try it").click()
        await expect(page.locator("#tried")).to_contain_text("3 decisions would change, 3 would not")


async def test_rules_of_the_dashboard_lead_to_suggestions(on: Stage) -> None:
    async with visit(on, "olga", "/console/") as (page, _):
        await page.get_by_role("link", name="Suggestions for money-needs-a-person").click()
        await expect(page).to_have_url(f"{on.house.base}/console/policy/suggestions?rule=money-needs-a-person")
        await expect(page.locator("tr[aria-current]")).to_contain_text("money-needs-a-person")
        await page.goto("/console/")
        await page.get_by_role("link", name="Suggestions", exact=True).click()
        await expect(page.get_by_role("heading", name="Suggested rules for shop")).to_be_visible()


async def test_suggestions_are_for_readers_of_policies(on: Stage) -> None:
    async with visit(on, "sam", "/console/") as (page, _):
        await expect(page.get_by_role("link", name="Suggestions")).to_have_count(0)
        assert (await page.request.get("/console/policy/suggestions?agent=shop")).status == 403
        answer = await page.request.get("/console/policy/suggestions")
        assert "There is no policy that you may read." in await answer.text()


async def test_a_busy_server_says_to_try_again(on: Stage) -> None:
    policies = on.house.service.policy_service
    async with visit(on, "olga") as (page, _):
        async with policies._backtest_lock:  # pyright: ignore[reportPrivateUsage] - as if one were under way
            answer = await page.goto("/console/policy/suggestions")
        assert answer is not None
        assert answer.status == 503
        await expect(page.get_by_role("alert")).to_contain_text("Try again in a moment.")


async def test_suggestions_fit_a_narrow_phone(on: Stage) -> None:
    async with visit(on, "olga", phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.goto("/console/policy/suggestions")
        await expect(page.get_by_role("textbox")).to_be_visible()
        await assert_no_sideways(page)
        await page.goto("/console/")
        await assert_no_sideways(page)
