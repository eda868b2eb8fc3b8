"""The inbox for many questions, in a real browser: search, views, selections, assignments and comments."""

import re
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from interlock.server.core.index.rows import ActionRow
from tests.server.console.browser import (
    Theme,
    assert_accessible,
    assert_no_sideways,
    is_live,
    opened_as,
)
from tests.server.console.scenes import EDIT, LONG, RENAME
from tests.server.console.visits import ADMIN
from tests.server.server_process import Call, Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = "<img src=x onerror=alert(1)> \u202eevil\nsecond line"


def _refund(order: str, amount: float) -> Call:
    return "refund", {"order": order, "amount": amount}


async def _ask(house: Running, words: str, call: Call) -> ActionRow:
    (row,) = await house.questions(await house.begin(words, call))
    return row


@pytest_asyncio.fixture(loop_scope="session")
async def refunds(served: Running) -> AsyncGenerator[list[ActionRow]]:
    """Five refunds: of 0, 100, 200, 300 and 400."""
    yield [await _ask(served, f"Refund B-{number}.", _refund(f"B-{number}", number * 100)) for number in range(5)]


async def test_search_and_filters_are_in_the_address(operator: Page, served: Running, refunds: list[ActionRow]) -> None:
    await _ask(served, "Change the page.", EDIT)
    await operator.goto("/console/inbox")
    await is_live(operator)
    rows = operator.locator(".queue .item")
    await expect(rows).to_have_count(6)

    await operator.keyboard.press("/")
    await operator.keyboard.type("refund amount>=300")
    await operator.keyboard.press("Enter")
    await expect(operator).to_have_url(re.compile("q=refund"))
    await expect(rows).to_have_count(2)
    await is_live(operator)
    await operator.keyboard.press("f")
    form = operator.get_by_role("search")
    await form.get_by_label("Order").select_option("newest")
    await form.get_by_label("Risk").select_option("network")
    await operator.get_by_role("button", name="Show").click()
    await expect(rows.first).to_contain_text("B-4")

    address = operator.url
    await operator.goto("/console/")
    await operator.goto(address)
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("B-4")
    await operator.get_by_role("link", name="risk network").click()
    await expect(operator).not_to_have_url(re.compile("risk="))
    await operator.get_by_role("link", name="Clear all").click()
    await expect(rows).to_have_count(6)
    await operator.goto("/console/inbox?q=no-such-thing")
    await expect(operator.get_by_text("No question matches.")).to_be_visible()


async def test_many_are_rejected_with_one_reason(operator: Page, served: Running, refunds: list[ActionRow]) -> None:
    await operator.goto("/console/inbox")
    await is_live(operator)
    await operator.keyboard.press("x")
    await operator.keyboard.press("j")
    await expect(operator).to_have_url(re.compile(refunds[1].action_id))
    await is_live(operator)
    await operator.keyboard.press("x")
    await expect(operator.get_by_text("2 selected")).to_be_visible()
    await operator.keyboard.press("D")
    await operator.keyboard.type("No receipts.")
    await served.service.approval_service.reject(ADMIN, refunds[1].action_id, "Mine.")

    dialog = operator.get_by_role("dialog")
    await dialog.get_by_role("button", name="Reject all").click()

    await expect(dialog).to_contain_text("Rejected.")
    await expect(dialog).to_contain_text("rejected by user:alex at 2")
    await expect(operator.get_by_text("1 rejected, 1 skipped.")).to_be_visible()
    view = await served.service.run_queries.get_question(ADMIN, refunds[0].action_id)
    assert view.action.answer is not None
    assert (view.action.answer.by, view.action.answer.reason) == ("user:olga", "No receipts.")


async def test_many_are_approved_after_each_was_seen(operator: Page, served: Running, refunds: list[ActionRow]) -> None:
    long, value = await _ask(served, "Publish it.", LONG), await _ask(served, "Name it.", RENAME)
    await operator.goto("/console/inbox")
    await is_live(operator)
    await operator.keyboard.press("X")
    await expect(operator.get_by_text("7 selected")).to_be_visible()
    await operator.keyboard.press("A")

    approve = operator.get_by_role("button", name="Approve 5 calls")
    await expect(approve).to_be_disabled()
    for row, words in ((long, "too long for a list"), (value, "asks for a value")):
        await expect(operator.locator(f'li:has(a[href*="{row.action_id}"])')).to_contain_text(words)
    for at in range(5):
        await operator.keyboard.press("j")
        await expect(operator.locator("[data-review-item]").nth(at)).to_have_attribute("data-seen", "yes")
    await operator.locator("[data-include]").nth(1).uncheck()
    await served.service.approval_service.reject(ADMIN, refunds[2].action_id, "Mine.")
    await operator.get_by_role("button", name="Approve 4 calls").click()

    await expect(operator.get_by_role("status").get_by_text("3 approved, 1 skipped.").first).to_be_visible()
    outcomes = operator.locator("[data-outcome]")
    await expect(outcomes.nth(0)).to_contain_text("Approved.")
    await expect(outcomes.nth(1)).to_contain_text("Left out.")
    await expect(outcomes.nth(2)).to_contain_text("rejected by user:alex at 2")
    for at in (0, 3, 4):
        await served.ended(refunds[at].run_id)
    still = await served.service.index.get_action(refunds[1].action_id)
    assert still is not None
    assert still.status == "PENDING"


async def test_comments_show_hostile_text_as_text(operator: Page, served: Running, refunds: list[ActionRow]) -> None:
    await served.service.inbox.add_comment(ADMIN, refunds[0].action_id, HOSTILE)
    await operator.goto(f"/console/inbox/{refunds[0].action_id}")
    await is_live(operator)

    shown = operator.locator(".comments")
    for text in ("user:alex", "<img src=x onerror=alert(1)>", "\\u{202e}evil", "second line"):
        await expect(shown).to_contain_text(text)
    await operator.keyboard.press("c")
    await operator.keyboard.type("Looks odd to me. <b>Wait</b>")
    await operator.get_by_role("button", name="Add the comment").click()

    await expect(shown.locator("li")).to_have_count(2)
    await expect(shown).to_contain_text("Looks odd to me. <b>Wait</b>")
    await expect(operator.get_by_role("textbox", name="Comment")).to_have_value("")
    await expect(shown.locator("img, b b")).to_have_count(0)


async def test_questions_are_taken_and_found_again(operator: Page, served: Running, refunds: list[ActionRow]) -> None:
    await operator.goto(f"/console/inbox/{refunds[1].action_id}")
    await is_live(operator)

    await operator.keyboard.press("m")
    await expect(operator.locator("[data-work]")).to_contain_text("Assigned to user:olga")
    await operator.goto("/console/inbox?assigned=me")
    await expect(operator.locator(".queue .item")).to_have_count(1)
    await expect(operator.locator(".queue .item")).to_contain_text("user:olga")
    await operator.goto("/console/inbox?assigned=none")
    await expect(operator.locator(".queue .item")).to_have_count(4)
    await operator.goto(f"/console/inbox/{refunds[1].action_id}")
    await is_live(operator)
    await operator.get_by_label("Assign to").select_option("user:alex")
    await expect(operator.locator("[data-work]")).to_contain_text("Assigned to user:alex")


async def test_views_are_saved_and_deleted(operator: Page, refunds: list[ActionRow]) -> None:
    await operator.goto("/console/inbox?q=amount>=300&cursor=")
    await is_live(operator)
    await operator.keyboard.press("s")
    await operator.get_by_label("Save the search and filters as").fill("Large")
    await operator.get_by_role("button", name="Save", exact=True).click()
    view = operator.get_by_role("link", name="Large")
    await expect(view).to_be_visible()

    await operator.goto("/console/inbox")
    await view.click()
    await expect(operator.locator(".queue .item")).to_have_count(2)
    await expect(view).to_have_attribute("aria-current", "page")
    await is_live(operator)
    await operator.keyboard.press("s")
    await operator.get_by_role("button", name="Delete Large").click()
    await expect(view).to_have_count(0)


async def test_pages_keep_the_filters(operator: Page, served: Running) -> None:
    begun = [await served.begin(f"Refund P-{number}.", _refund(f"P-{number}", 1)) for number in range(52)]
    for run_id in begun:
        await served.questions(run_id)
    await operator.goto("/console/inbox?q=refund")
    rows = operator.locator(".queue .item")

    await expect(rows).to_have_count(50)
    await operator.get_by_role("link", name="Next page").click()
    await expect(rows).to_have_count(2)
    await expect(operator).to_have_url(re.compile("q=refund.*cursor="))
    await operator.get_by_role("link", name="First page").click()
    await expect(rows).to_have_count(50)


@pytest.mark.parametrize(("theme", "phone"), [("light", False), ("dark", False), ("light", True)])
async def test_every_part_is_accessible(
    program: Browser, served: Running, refunds: list[ActionRow], theme: Theme, phone: bool
) -> None:
    await served.service.inbox.add_comment(ADMIN, refunds[0].action_id, "Why?")
    await served.service.inbox.assign(ADMIN, refunds[0].action_id, "olga")
    await served.service.inbox.views.save("user:olga", "Large", "?q=amount>%3D300")
    ids = "&".join(f"id={row.action_id}" for row in refunds)
    paths = (
        "/console/inbox?agent=shop",
        f"/console/inbox/{refunds[0].action_id}",
        f"/console/inbox/review?{ids}&id=unknown",
    )
    async with opened_as("olga", program, served, theme=theme, phone=phone) as (page, _):
        for path in paths:
            await page.goto(path)
            await page.locator("body[data-settled]").wait_for()
            for closed in await page.locator("[data-filters]").all():
                await closed.evaluate("each => { each.open = true }")
            if await page.locator("[data-pick]").first.is_visible():
                await page.locator("[data-pick]").first.check()
            await assert_no_sideways(page)
            await assert_accessible(page)
