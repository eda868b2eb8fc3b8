"""An operator's day in a real browser: runs pause, are decided on, and go on or end while they are looked at."""

import pytest
from playwright.async_api import Browser, Page, expect

from tests.server.console.browser import is_live, opened, sign_in
from tests.server.story.agents import task
from tests.server.story.process import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.requirement("R124", "R127", "R129", "R131", "R147", "R149", "R150", "R152", "R153", "P12")
async def test_a_run_pauses_is_approved_with_another_amount_and_completes_while_it_is_looked_at(
    program: Browser, served: Served
) -> None:
    before = served.ledger
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "olga", "/console/runs")
        await is_live(page)
        run_id = served.begin(task("Mia wants her money back.", ("refund", {"order": "B-7", "amount": 42.5})))
        await expect(page.locator(f'tr[data-key="{run_id}"]')).to_contain_text("Waiting for approval")
        assert served.run(run_id)["status"] == "PAUSED_APPROVAL"
        assert served.ledger == before

        await page.get_by_role("link", name="Mia wants her money back.").click()
        await is_live(page)
        await page.get_by_role("link", name="1 open question").click()
        question = page.locator("[data-question]")
        for words in ("refund", "shop", "Asked", "user:sam", "key:shop-bot", "Money leaves the house.", "sha256:"):
            await expect(question).to_contain_text(words)
        watching = await page.context.new_page()
        await watching.goto(f"/console/runs/{run_id}")
        await is_live(watching)
        await approve_with(page, '{"order": "B-7", "amount": "a lot"}')
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("amount")
        await page.keyboard.press("Escape")
        await approve_with(page, '{"order": "B-7", "amount": 20.0}')
        await expect(page.get_by_text("Approved.")).to_be_visible()

        # Money needs four eyes, so another person has to see what olga wrote.
        async with opened(program, served.base) as (second, _):
            await sign_in(second, "oscar", f"/console/runs/{run_id}")
            await second.get_by_role("link", name="1 open question").click()
            await expect(second.locator("[data-question]")).to_contain_text("edited by user:olga")
            await second.get_by_role("button", name="Approve").click()
            await second.get_by_role("button", name="Yes, run it").click()
            await expect(second.get_by_text("Approved.")).to_be_visible()

        await expect(watching.locator("#run-status")).to_contain_text("Completed")
        await expect(watching.locator(".transcript")).to_contain_text("refunded 20.0 for B-7")
        assert served.ledger == [*before, "B-7 20.0"]
        # The model repeats what it was told: that it was a person, and what they made of it.
        told = served.run(run_id)["message"]
        assert "A person (user:olga) changed the arguments before it ran" in told
        await expect(watching.locator(".transcript")).to_contain_text("user:olga")
    decided = ["APPROVAL_REQUIRED", "APPROVAL_GRANTED"]
    types = ["LLM_CALL", *decided, "ERROR", *decided, "TOOL_CALL", "LLM_CALL", "COMPLETED"]
    events = served.events(run_id)
    assert [event["type"] for event in events] == types
    asked, granted = (event["data"] for event in events[1:3])
    assert (asked["tool"], asked["status"]) == ("refund", "PENDING")
    assert (granted["by"], granted["reason"]) == ("user:olga", "The bag was used.")
    assert "edited by user:olga: another person" in str(events[3]["data"])
    assert events[5]["data"]["by"] == "user:oscar"
    facts = {event["event"]["fact"]["type"]: event["event"]["fact"] for event in served.events(run_id, "log")}
    ran = facts["tool.invocation.started"]
    assert ran["arguments"] == {"order": "B-7", "amount": 20.0}
    assert ran["payload_hash"].startswith("sha256:")
    assert ran["payload_hash"] != asked["payload_hash"]


@pytest.mark.requirement("R133", "R151")
async def test_a_run_that_is_rejected_fails_and_nothing_was_done(program: Browser, served: Served) -> None:
    before = served.ledger
    run_id = served.begin(task("Give it all away.", ("refund", {"order": "B-8", "amount": 9000.0})))
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "olga", f"/console/runs/{run_id}")
        await page.get_by_role("link", name="1 open question").click()
        await page.get_by_role("button", name="Reject").click()
        await page.get_by_role("textbox", name="Reason").fill("That is more than was paid.")
        await page.get_by_role("dialog").get_by_role("button", name="Reject").click()
        await expect(page.get_by_text("Rejected.")).to_be_visible()
        await page.goto(f"/console/runs/{run_id}")
        await expect(page.locator("#run-status")).to_contain_text("Rejected")
        await expect(page.locator(".transcript")).to_contain_text("user:olga")
    types = [event["type"] for event in served.events(run_id)]
    assert types == ["LLM_CALL", "APPROVAL_REQUIRED", "APPROVAL_REJECTED", "ERROR"]
    assert served.ledger == before


async def test_who_makes_a_run_in_the_console_cannot_approve_it_alone(program: Browser, served: Served) -> None:
    before = served.ledger
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "olga", "/console/runs")
        await page.get_by_role("button", name="New run").click()
        wish = task("For myself.", ("refund", {"order": "B-9", "amount": 1.0}))
        await page.get_by_role("dialog").get_by_label("Task").fill(wish)
        await page.get_by_role("button", name="Start").click()
        await page.wait_for_url("**/console/runs/run_*")
        await expect(page.locator("#run-status")).to_contain_text("Waiting for approval")
        await page.get_by_role("link", name="1 open question").click()
        await expect(page.locator("[data-why-not]")).to_contain_text("another person has to decide")
        assert await page.get_by_role("button", name="Approve").count() == 0
    assert served.ledger == before


async def approve_with(page: Page, arguments: str) -> None:
    """Say yes to other arguments, on the page of a question."""
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Arguments, as JSON").fill(arguments)
    await page.get_by_role("button", name="Continue to approval").click()
    await page.get_by_label("Reason (optional)").fill("The bag was used.")
    await page.get_by_role("button", name="Yes, run it").click()
