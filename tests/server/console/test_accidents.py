"""Nobody decides by accident: held keys, double clicks, keys that were meant for the question before, a page that is
older than what it shows, a sign-in that ended."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from interlock import LocalTools, PolicyFiles
from interlock.server.core.identity.principal import Role
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.runs.approval_service import Approval
from tests.server.console.browser import is_live, opened_as
from tests.server.console.scenes import REFUND, RENAME
from tests.server.console.visits import ADMIN, Stage, visit
from tests.server.server_process import Call, Running, console_server, demo_agent

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _write_policy(file: Path, work: Path) -> None:
    file.write_text("version: 1\n")
    work.mkdir()


async def _question(served: Running, words: str, call: Call = REFUND) -> str:
    (row,) = await served.questions(await served.begin(words, call))
    return row.action_id


async def _status(served: Running, action_id: str) -> str:
    return (await served.service.run_queries.get_question(ADMIN, action_id)).row.status


async def _signed_in_anew(page: Page, served: Running, name: str) -> None:
    """In another tab."""
    new = await served.service.sessions.start(name)
    assert new is not None
    await page.context.add_cookies([{"name": "interlock_session", "value": new.token, "url": served.base}])


async def test_a_key_that_is_held_down_opens_the_second_step_and_does_not_take_it(on: Stage) -> None:
    action_id = await _question(on.house, "Held down.")
    async with visit(on, "olga", f"/console/inbox/{action_id}") as (page, _):
        await is_live(page)
        await page.get_by_role("button", name="Approve").first.focus()
        for _ in range(4):
            await page.keyboard.down("Enter")

        await expect(page.get_by_role("button", name="Yes, run it")).to_be_focused()
        assert await _status(on.house, action_id) == "PENDING"
        await page.keyboard.up("Enter")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Approved.")).to_be_visible()


async def test_the_second_half_of_a_double_click_is_no_yes(on: Stage) -> None:
    action_id = await _question(on.house, "Double click.")
    async with visit(on, "olga", f"/console/inbox/{action_id}") as (page, _):
        await is_live(page)
        await page.keyboard.press("a")
        yes = page.get_by_role("button", name="Yes, run it")
        await yes.evaluate(
            "one => one.dispatchEvent(new MouseEvent('click', {detail: 2, bubbles: true, cancelable: true}))"
        )

        await expect(yes).to_be_enabled()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await _status(on.house, action_id) == "PENDING"


async def test_a_key_that_was_meant_for_the_question_before_does_nothing(on: Stage) -> None:
    action_id = await _question(on.house, "Too early.")
    async with visit(on, "olga") as (page, _):
        await page.clock.install()
        await page.clock.pause_at("2100-01-01")
        await page.goto(f"/console/inbox/{action_id}")
        await page.keyboard.press("a")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)

        await page.clock.run_for(1_000)
        await page.keyboard.press("a")

        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await _status(on.house, action_id) == "PENDING"


@pytest.mark.parametrize("path", ["/console/inbox", "/console/runs", "/console/admin", "/console/runs/{run_id}"])
async def test_every_page_starts_once_and_its_theme_can_be_changed(on: Stage, path: str) -> None:
    run_id = await on.house.begin("Small talk.")
    await on.house.ended(run_id)
    asked: list[str] = []
    async with visit(on) as (page, _):
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(path.format(run_id=run_id))
        await is_live(page)
        await page.get_by_role("button", name="Change between light and dark").click()

        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert [sum(name in url for url in asked) for name in ("/base.js", "/live.js", "/v1/events/stream")] == [
            1,
            1,
            1,
        ]


async def test_a_yes_for_a_time_ends_by_the_clock_of_the_server(program: Browser, tmp_path: Path) -> None:
    local = demo_agent(tools=LocalTools(tmp_path), policy=None)
    async with console_server(tmp_path / "state", agents=[local]) as served:
        action_id = await _question(served, "List it.", ("bash", {"command": "touch new"}))
        before = served.service.now()
        async with opened_as("olga", program, served) as (page, _):
            await page.clock.install(time="2031-01-01")
            await page.goto(f"/console/inbox/{action_id}")
            await is_live(page)
            await page.keyboard.press("a")
            await page.get_by_label("Scope").select_option("window")
            await page.get_by_label("For", exact=True).select_option("15")
            await page.get_by_role("button", name="Yes, run it").click()
            await expect(page.get_by_text("Approved.")).to_be_visible()

        answer = (await served.service.run_queries.get_question(ADMIN, action_id)).action.answer
        assert answer is not None
        assert answer.scope == "window"
        assert 890 <= (answer.until - before) / 1e9 <= 960


@pytest.mark.requirement("P22")
async def test_a_yes_that_keeps_a_rule_keeps_the_one_that_was_shown(program: Browser, tmp_path: Path) -> None:
    file, work = tmp_path / "policy.yaml", tmp_path / "work"
    await asyncio.to_thread(_write_policy, file, work)
    local = demo_agent(tools=LocalTools(work), policy=PolicyFiles(user=file))
    other = demo_agent(name="other", policy=PolicyFiles(user=file))
    async with console_server(tmp_path / "state", agents=[local, other]) as served:
        action_id = await _question(served, "List it.", ("bash", {"command": "touch new"}))
        async with opened_as("olga", program, served) as (page, _):
            await page.goto(f"/console/inbox/{action_id}")
            await is_live(page)
            await page.keyboard.press("a")
            await page.get_by_label("Scope").select_option("rule")
            rule = await page.get_by_label("Rule to keep").input_value()
            assert "touch" in rule
            await expect(page.locator("[data-rule-target]")).to_contain_text("It also holds for other")
            await expect(page.locator("[data-rule-preview]")).to_contain_text(f"Only in {work}.")
            await page.get_by_label("Rule to keep").fill("{decision: allow}")
            await page.get_by_role("button", name="Yes, run it").click()
            await expect(page.locator("#approve [data-problem]")).to_contain_text("not provably narrower")
            assert await _status(served, action_id) == "PENDING"
            await page.get_by_label("Rule to keep").fill(rule)
            await page.get_by_role("button", name="Yes, run it").click()
            await expect(page.get_by_text("Approved.")).to_be_visible()

        answer = (await served.service.run_queries.get_question(ADMIN, action_id)).action.answer
        assert answer is not None
        assert (answer.scope, answer.rule) == ("rule", rule)


async def test_a_rule_that_cannot_be_kept_is_not_offered(program: Browser, tmp_path: Path) -> None:
    local = demo_agent(tools=LocalTools(tmp_path), policy=None)
    async with console_server(tmp_path / "state", agents=[local]) as served:
        action_id = await _question(served, "List it.", ("bash", {"command": "touch new"}))
        async with opened_as("olga", program, served) as (page, _):
            await page.goto(f"/console/inbox/{action_id}")
            await is_live(page)
            await page.keyboard.press("a")

            await expect(page.locator('option[value="rule"]')).to_be_disabled()
            await expect(page.locator("[data-no-rule]")).to_contain_text("no file that rules can be kept in")


async def test_buttons_are_disabled_until_the_script_is_there(on: Stage) -> None:
    """A click before that would be lost."""
    action_id = await _question(on.house, "Slow script.")
    arrives = asyncio.Event()

    async def later(route: Route) -> None:
        await arrives.wait()
        await route.continue_()

    async with visit(on, "olga") as (page, _):
        await page.route("**/inbox.js*", later)
        await page.goto(f"/console/inbox/{action_id}", wait_until="commit")
        buttons = [page.locator(f'footer.answers [data-do="{what}"]') for what in ("approve", "reject", "edit")]
        for button in buttons:
            await expect(button).to_be_disabled()
        arrives.set()
        for button in buttons:
            await expect(button).to_be_enabled()


async def test_many_at_once_say_how_many_were_approved_before_one_was_not(on: Stage) -> None:
    call = ("publish", {"path": "same.html", "content": "Same."})
    one, two, three = [await _question(on.house, f"Publish {at}.", call) for at in range(3)]
    async with visit(on, "olga", f"/console/inbox/{one}") as (page, _):
        await is_live(page)
        await page.get_by_role("button", name="Approve all 3 that are identical").click()
        await expect(page.get_by_label("Scope")).to_be_hidden()
        await on.house.service.approval_service.reject(ADMIN, two, "No.")
        await page.get_by_role("button", name="Yes, run it").click()

        shown = page.get_by_text("1 of 3 were approved").first
        await expect(shown).to_contain_text("is REJECTED: it was rejected by user:alex at 2")
    answer = (await on.house.service.run_queries.get_question(ADMIN, one)).action.answer
    assert answer is not None
    assert answer.scope == "once"
    assert await _status(on.house, three) == "PENDING"


async def test_a_yes_to_what_changed_meanwhile_runs_nothing_and_is_asked_anew(program: Browser, tmp_path: Path) -> None:
    target = tmp_path / "work" / "page.html"
    target.parent.mkdir()
    target.write_text("old")
    local = demo_agent(tools=LocalTools(target.parent), policy=None)
    async with console_server(tmp_path / "state", agents=[local]) as served:
        action_id = await _question(served, "Remove it.", ("bash", {"command": "rm page.html"}))
        async with opened_as("olga", program, served) as (page, _):
            second = await page.context.new_page()
            for tab in (page, second):
                await tab.goto(f"/console/inbox/{action_id}")
                await is_live(tab)
            target.write_text("new")
            await page.keyboard.press("a")
            await page.keyboard.press("Enter")

            await expect(second.locator("[data-question]")).to_contain_text("Void")
            await expect(second.get_by_role("button", name="Approve")).to_have_count(0)
            await expect(second.get_by_text("not open any more")).to_be_visible()
            await second.locator(".queue .item").click()
            await expect(second.locator("[data-question]")).to_contain_text("Changed since it was asked before")
            assert target.read_text() == "new"


async def test_going_back_to_an_answered_question_shows_the_answer(on: Stage) -> None:
    action_id = await _question(on.house, "Back.")
    async with visit(on, "olga", f"/console/inbox/{action_id}") as (page, _):
        await is_live(page)
        await page.keyboard.press("a")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Next question").or_(page.get_by_role("link", name="Back to")).click()
        await page.wait_for_load_state()

        await page.go_back()

        await expect(page.locator("[data-question]")).to_contain_text("approved by user:olga")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


async def test_what_was_typed_outlives_the_sign_in_and_is_sent_after_the_next_one(on: Stage) -> None:
    action_id = await _question(on.house, "Typed.")
    async with visit(on, "olga", f"/console/inbox/{action_id}") as (page, _):
        await is_live(page)
        await page.keyboard.press("d")
        await page.keyboard.type("A long and careful reason.")
        await on.house.service.sessions.end_all("olga", by="user:alex")
        form = page.get_by_role("dialog")
        await form.get_by_role("button", name="Reject").click()
        await expect(form.get_by_role("alert").first).to_contain_text("Your sign-in ended. Nothing was done.")
        assert await _status(on.house, action_id) == "PENDING"

        await _signed_in_anew(page, on.house, "olga")
        await form.get_by_role("button", name="Reject").click()

        await expect(page.get_by_text("Rejected.")).to_be_visible()
    answer = (await on.house.service.run_queries.get_question(ADMIN, action_id)).action.answer
    assert answer is not None
    assert (answer.by, answer.reason) == ("user:olga", "A long and careful reason.")


async def test_what_one_person_typed_is_not_sent_as_the_next_one(on: Stage) -> None:
    action_id = await _question(on.house, "Other hands.")
    async with visit(on, "olga", f"/console/inbox/{action_id}") as (page, _):
        await is_live(page)
        await page.keyboard.press("a")
        await _signed_in_anew(page, on.house, "alex")
        await page.get_by_role("button", name="Yes, run it").click()

        await expect(page.get_by_role("dialog").locator("#lost")).to_contain_text("Another person is signed in")
        assert await _status(on.house, action_id) == "PENDING"


async def test_a_value_never_goes_into_an_address(on: Stage) -> None:
    action_id = await _question(on.house, "Name it.", RENAME)
    async with visit(on, "olga", f"/console/inbox/{action_id}", java_script_enabled=False) as (page, _):
        await expect(page.get_by_text("Answering questions and beginning runs need scripts.")).to_be_visible()
        await expect(page.locator("[data-question]")).to_contain_text("rename")
        await expect(page.get_by_role("button", name="Answer", exact=True)).to_be_disabled()
        await expect(page).to_have_url(re.compile(f"{action_id}$"))


async def test_two_clicks_begin_one_run(on: Stage) -> None:
    async with visit(on, "olga", "/console/runs") as (page, _):
        await page.get_by_role("button", name="New run").click()
        await page.get_by_label("Task").fill("Only once.")
        await page.get_by_role("button", name="Start").dblclick()
        await expect(page).to_have_url(re.compile("/console/runs/run_"))
    found = await on.house.service.index.list_runs(RunQuery(text="Only once."))
    assert len(found.rows) == 1


async def test_whoever_owns_no_agent_owns_none_after_another_change(on: Stage) -> None:
    accounts = on.house.service.accounts
    await accounts.create("nina", "a password of nina", roles=[Role.OPERATOR], agents=frozenset(), by="user:alex")
    async with visit(on, "alex", "/console/admin") as (page, _):
        await page.get_by_role("button", name="Change nina").click()
        await page.get_by_label("Disabled").check()
        async with page.expect_navigation():
            await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("row", name="nina")).to_contain_text("Disabled")
    nina = next(each for each in await accounts.list() if each.name == "nina")
    assert (nina.agents, nina.disabled) == (frozenset(), True)


async def test_a_question_that_is_not_on_the_screen_cannot_be_decided(on: Stage) -> None:
    """Zoomed to twice the size, the list stands alone."""
    action_id = await _question(on.house, "Off the screen.")
    async with visit(on, "olga") as (page, _):
        await page.set_viewport_size({"width": 640, "height": 400})
        await page.goto("/console/inbox")
        await is_live(page)
        for key in ("a", "Enter", "d", "e"):
            await page.keyboard.press(key)
        assert await page.locator("dialog[open]").count() == 0

        await page.keyboard.press("j")
        await expect(page.locator("[data-question]")).to_be_visible()
        await is_live(page)
        await page.keyboard.press("a")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await expect(page.get_by_role("button", name="Yes, run it")).to_be_in_viewport()
    assert await _status(on.house, action_id) == "PENDING"


async def test_a_page_of_somebody_who_looks_at_a_decided_call_cannot_decide_another(on: Stage) -> None:
    """What the list calls first changes while the page is open; the question on it does not."""
    first, second = [await _question(on.house, f"List {at}.") for at in range(2)]
    async with visit(on, "olga", f"/console/inbox/{first}") as (page, _):
        await is_live(page)
        hash_ = (await on.house.service.run_queries.get_question(ADMIN, first)).action.payload_hash
        await on.house.service.approval_service.approve(ADMIN, first, Approval(payload_hash=hash_))
        await expect(page.locator("[data-question]")).to_have_attribute("data-action-id", first)
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
        await page.keyboard.press("a")
        await page.keyboard.press("Enter")
    assert await _status(on.house, second) == "PENDING"
