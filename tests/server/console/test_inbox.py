"""The inbox in a real browser: what is shown, and what is decided."""

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from interlock.domain.call import Answer
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.approval_service import Approval
from interlock.server.core.runs.run_service import NewRun
from tests.server.console.browser import is_live, opened_as
from tests.server.console.scenes import EDIT, LONG, REFUND, RENAME
from tests.server.server_process import Call, Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALEX = Principal(name="user:alex", kind="person", roles=frozenset((Role.ADMIN,)))


async def _question(house: Running, words: str, call: Call) -> tuple[str, str]:
    """A run that asks: its id, and its question's."""
    run_id = await house.begin(words, call)
    (row,) = await house.questions(run_id)
    return run_id, row.action_id


async def _answer(house: Running, action_id: str) -> Answer:
    answer = (await house.service.run_queries.get_question(ALEX, action_id)).action.answer
    assert answer is not None
    return answer


async def _ran(house: Running, run_id: str) -> list[Any]:
    """The arguments that the run's first call ran with, for each time that it ran."""
    return [
        ran.arguments for ran in (await house.service.run_queries.get_call(ALEX, run_id, "c0")).execution.invocations
    ]


@pytest.mark.requirement("R148")
async def test_a_question_says_who_asks_what_would_run_and_why_it_is_asked(operator: Page, served: Running) -> None:
    run_id, action_id = await _question(served, "Give Mia her money back.", REFUND)
    hash_ = (await served.service.run_queries.get_question(ALEX, action_id)).action.payload_hash

    await operator.goto("/console/inbox")

    shown = operator.locator("[data-question]")
    for text in ("refund", "shop", "user:sam", "key:agent", "Give Mia her money back.", "order | A-1042", "network"):
        await expect(shown).to_contain_text(text)
    for text in ("money-needs-a-person", "project rule", "Money leaves the house.", hash_, action_id):
        await expect(shown).to_contain_text(text)
    await expect(shown.get_by_role("link", name="Give Mia")).to_have_attribute("href", re.compile(run_id))


async def test_two_keys_approve_and_the_run_goes_on_by_itself(operator: Page, served: Running) -> None:
    run_id, action_id = await _question(served, "Give Mia her money back.", REFUND)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)

    await operator.keyboard.press("a")
    dialog = operator.get_by_role("dialog")
    await expect(dialog.locator(".hash-strong")).to_contain_text("sha256:")
    for text in ("refund: order=A-1042, amount=42.5", "note | Arrived broken; the customer sent photos."):
        await expect(dialog).to_contain_text(text)
    assert (await served.service.run_queries.get_question(ALEX, action_id)).row.status == "PENDING"
    await operator.keyboard.press("Enter")

    await expect(operator.get_by_text("Approved.")).to_be_visible()
    await served.ended(run_id)
    assert (await _answer(served, action_id)).by == "user:olga"
    assert await _ran(served, run_id) == [REFUND[1]]


async def test_result_appears_where_it_was_answered(operator: Page, served: Running) -> None:
    first, second = [await _question(served, f"Task {at}", REFUND) for at in range(2)]
    await operator.goto("/console/inbox")
    await is_live(operator)

    await operator.keyboard.press("a")
    await operator.keyboard.press("Enter")

    outcome = operator.locator(".outcome")
    for text in ("approved by user:olga", "The call succeeded", "refunded 42.5 for A-1042", "Completed"):
        await expect(outcome).to_contain_text(text)
    await expect(operator).to_have_url(re.compile(first[1]))
    await expect(operator.get_by_role("link", name="Next question")).to_be_focused()
    await operator.keyboard.press("n")
    await expect(operator).to_have_url(re.compile(second[1]))


async def test_conflict_says_who_answered_what_and_when(operator: Page, served: Running) -> None:
    _, action_id = await _question(served, "Give Mia her money back.", REFUND)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)
    arrives = asyncio.Event()

    async def later(route: Route) -> None:
        await arrives.wait()
        await route.continue_()

    await operator.keyboard.press("a")
    await operator.route("**/console/inbox/*", later)  # the page does not know of it yet
    await served.service.approval_service.reject(ALEX, action_id, "Not today.")
    await operator.get_by_role("button", name="Yes, run it").click()

    note = operator.locator("[data-conflict]")
    await expect(note).to_contain_text(re.compile(r"not recorded: user:alex rejected this \d+ s ago: Not today\."))
    arrives.set()
    await expect(operator.locator(".outcome")).to_contain_text("rejected by user:alex")


async def test_keys_move_between_questions_and_do_nothing_while_somebody_types(operator: Page, served: Running) -> None:
    first, second = [await _question(served, f"Task {at}", REFUND) for at in range(2)]
    await operator.goto("/console/inbox")
    await is_live(operator)

    await operator.keyboard.press("j")
    await expect(operator).to_have_url(re.compile(second[1]))
    await is_live(operator)
    await operator.keyboard.press("k")
    await expect(operator).to_have_url(re.compile(first[1]))
    await is_live(operator)
    await operator.keyboard.press("/")
    search = operator.get_by_role("searchbox", name="Search")
    await expect(search).to_be_focused()
    await operator.keyboard.type("jad?")
    await expect(search).to_have_value("jad?")
    await expect(operator.get_by_role("dialog")).to_have_count(0)
    await search.blur()
    await operator.keyboard.press("?")
    await expect(operator.get_by_role("dialog", name="Keys")).to_be_visible()
    await operator.keyboard.press("Escape")
    await operator.keyboard.press("o")
    await expect(operator).to_have_url(re.compile(f"/console/runs/{first[0]}"))


async def test_edited_arguments_are_checked_by_the_server_and_are_what_runs(operator: Page, served: Running) -> None:
    run_id, action_id = await _question(served, "Give Mia her money back.", REFUND)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)
    form, text = operator.get_by_role("dialog"), operator.get_by_label("Arguments, as JSON")

    await operator.keyboard.press("e")
    await text.fill("{ not json")
    await form.get_by_role("button", name="Continue").click()
    await expect(form.get_by_role("alert")).to_contain_text("This is not JSON")
    await text.fill('{"order": "A-1042"}')
    await form.get_by_role("button", name="Continue").click()
    await form.get_by_role("button", name="Yes, run it").click()
    await expect(form.get_by_role("alert")).to_contain_text("amount")
    assert (await served.service.run_queries.get_question(ALEX, action_id)).row.status == "PENDING"
    await operator.keyboard.press("Escape")

    await operator.keyboard.press("e")
    await text.fill('{"order": "A-1042", "amount": 1.0, "note": "half"}')
    await form.get_by_role("button", name="Continue").click()
    await expect(form.locator("[data-edited-text]")).to_contain_text('"amount": 1.0')
    await operator.keyboard.press("Enter")

    await expect(operator.get_by_text("Approved.")).to_be_visible()
    (edited,) = await served.questions(run_id, after=action_id)
    await operator.goto(f"/console/inbox/{edited.action_id}")
    await expect(operator.locator("[data-why-not]")).to_contain_text("edited by user:olga")
    assert await _ran(served, run_id) == []
    await served.service.approval_service.approve(ALEX, edited.action_id, Approval(payload_hash=edited.payload_hash))
    await served.ended(run_id)
    assert await _ran(served, run_id) == [{"order": "A-1042", "amount": 1.0, "note": "half"}]


async def test_a_yes_reaches_as_far_as_was_chosen(operator: Page, served: Running) -> None:
    call = ("publish", {"path": "a.html", "content": "Hello."})
    run_id, action_id = await _question(served, "Publish it.", call)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)

    await operator.keyboard.press("a")
    await operator.get_by_label("Scope").select_option("run")
    await operator.get_by_label("Reason (optional)").fill("Harmless.")
    await operator.get_by_role("button", name="Yes, run it").click()

    await expect(operator.get_by_text("Approved.")).to_be_visible()
    await served.ended(run_id)
    answer = Answer(approved=True, by="user:olga", scope="run", reason="Harmless.", channel="console")
    assert await _answer(served, action_id) == answer


async def test_a_rejection_has_a_reason_and_ends_the_run(operator: Page, served: Running) -> None:
    run_id, action_id = await _question(served, "Give Mia her money back.", REFUND)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)

    await operator.keyboard.press("d")
    await operator.keyboard.type("Not without a receipt.")
    await operator.get_by_role("dialog").get_by_role("button", name="Reject").click()

    await expect(operator.get_by_text("Rejected.")).to_be_visible()
    await served.ended(run_id, "failed")
    answer = Answer(approved=False, by="user:olga", reason="Not without a receipt.", channel="console")
    assert await _answer(served, action_id) == answer
    assert await _ran(served, run_id) == []


async def test_what_is_long_cannot_be_approved_before_all_of_it_was_shown(operator: Page, served: Running) -> None:
    _, action_id = await _question(served, "Publish the imprint.", LONG)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)
    approve = operator.get_by_role("button", name="Approve")

    await expect(approve).to_be_disabled()
    await operator.keyboard.press("a")
    await expect(operator.get_by_role("dialog")).to_have_count(0)
    await expect(operator.locator("[data-arguments]").get_by_text("Paragraph 299")).to_be_hidden()
    await operator.get_by_role("button", name="more: show all").click()

    await expect(operator.locator("[data-arguments]").get_by_text("Paragraph 299")).to_be_visible()
    await expect(approve).to_be_enabled()


async def test_only_identical_questions_are_approved_at_once_and_each_is_answered_for_itself(
    operator: Page, served: Running
) -> None:
    other = ("refund", {**REFUND[1], "amount": 43.0})
    one, two, three = [await _question(served, f"Task {at}", call) for at, call in enumerate((REFUND, REFUND, other))]
    await operator.goto(f"/console/inbox/{one[1]}")
    await is_live(operator)

    await operator.get_by_role("button", name="Approve all 2 that are identical").click()
    await operator.keyboard.press("Enter")

    await expect(operator.get_by_text("2 approved.")).to_be_visible()
    await operator.get_by_role("link", name="Next question").click()
    await expect(operator).to_have_url(re.compile(three[1]))
    await expect(operator.get_by_role("button", name="identical")).to_have_count(0)
    for run_id, action_id in (one, two):
        await served.ended(run_id)
        assert (await _answer(served, action_id)).by == "user:olga"
    assert (await served.service.run_queries.get_question(ALEX, three[1])).row.status == "PENDING"


async def test_whoever_made_a_run_is_told_that_somebody_else_has_to_decide(operator: Page, served: Running) -> None:
    olga = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)))
    wish = NewRun(agent="shop", task='For myself.\n> refund {"order": "A-1", "amount": 1}')
    row, _ = await served.service.run_service.create(olga, wish)
    (question,) = await served.questions(row.run_id)

    await operator.goto(f"/console/inbox/{question.action_id}")

    await expect(operator.locator("[data-why-not]")).to_contain_text("another person has to decide")
    await expect(operator.get_by_role("button", name="Approve")).to_have_count(0)


async def test_a_value_that_is_asked_for_is_given(operator: Page, served: Running) -> None:
    run_id, action_id = await _question(served, "Name it.", RENAME)
    await operator.goto(f"/console/inbox/{action_id}")
    await is_live(operator)

    await operator.get_by_label("Value for name").fill("Golden October")
    await operator.get_by_role("button", name="Answer", exact=True).click()

    await expect(operator.get_by_text("Given.")).to_be_visible()
    await served.ended(run_id)
    assert await _ran(served, run_id) == [{"name": "Golden October"}]


async def test_new_questions_appear_and_one_that_somebody_else_answered_can_no_longer_be(
    operator: Page, served: Running
) -> None:
    _, first = await _question(served, "Give Mia her money back.", REFUND)
    await operator.goto("/console/inbox")
    await is_live(operator)

    _, second = await _question(served, "Change the page.", EDIT)
    await expect(operator.locator(f'.queue a[href*="{second}"]')).to_be_visible()
    await expect(operator.get_by_role("link", name="Inbox")).to_contain_text("2 waiting")
    view = await served.service.run_queries.get_question(ALEX, first)
    await served.service.approval_service.approve(ALEX, first, Approval(payload_hash=view.action.payload_hash))

    await expect(operator.locator("[data-question]")).to_contain_text("Executed")
    await expect(operator.locator("[data-question]")).to_contain_text("approved by user:alex")
    await expect(operator.get_by_role("button", name="Approve")).to_have_count(0)
    await expect(operator.locator("[data-question] h2").first).to_contain_text("refund: order=A-1042")


async def test_the_change_of_a_file_is_shown_line_by_line(operator: Page, served: Running) -> None:
    _, action_id = await _question(served, "Change the page.", EDIT)

    await operator.goto(f"/console/inbox/{action_id}")

    assert await operator.locator(".diff li").all_text_contents() == [
        "-removed: <h1>Summer</h1>",
        "-removed: <p>From 20 EUR</p>",
        "+added: <h1>Summer sale</h1>",
        "+added: <p>From 15 EUR</p>",
        " <p>Free delivery</p>",
    ]


async def test_somebody_without_a_role_sees_the_questions_of_their_own_runs_and_decides_none(
    program: Browser, served: Running
) -> None:
    _, action_id = await _question(served, "Give Mia her money back.", REFUND)
    other = await served.begin("Not sam's.", REFUND, on_behalf_of="mia")
    await served.questions(other)
    async with opened_as("sam", program, served) as (page, _):
        await page.goto("/console/inbox")
        await expect(page.locator(".queue .item")).to_have_count(1)
        await expect(page.locator(f'.queue a[href*="{action_id}"]')).to_be_visible()
        await expect(page.locator("[data-why-not]")).to_contain_text("Not allowed")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
