"""Moving along a run: to any event and back, while it goes on, after the server was away, and in very long runs."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser

from interlock.domain.event import Fact, RunStarted, UserMessageReceived, WarningRaised
from interlock.history.state_view import RunStateView
from interlock.server.core.runs.approval_service import Approval
from tests.server.console.browser import is_live
from tests.server.console.visits import ADMIN, OPERATOR, Stage, edited_refund, visit, written
from tests.server.server_process import Running, console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

_STATES = {"running": "Running", "paused_approval": "Waiting for approval", "completed": "Completed"}


async def approve(served: Running, run_id: str) -> None:
    (asked,) = await served.questions(run_id)
    await served.service.approval_service.approve(OPERATOR, asked.action_id, Approval(payload_hash=asked.payload_hash))


async def test_every_event_has_the_state_that_the_log_says_it_had(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    last = (await on.house.service.run_queries.get_run(ADMIN, run_id)).last_seq
    seen: list[str] = []
    expected: list[str] = []
    async with visit(on, path=f"/console/runs/{run_id}?view=events") as (page, _):
        await page.locator("#place").focus()
        await page.keyboard.press("Home")
        for seq in range(last + 1):
            await page.locator("#state-title", has_text=f"State after event {seq}").wait_for()
            seen.append(" ".join((await page.locator("#state").inner_text()).split()))
            expected.append(_words(await on.house.service.run_queries.get_state(ADMIN, run_id, seq)))
            await page.keyboard.press("ArrowRight")
        assert urlsplit(page.url).query == f"at={last}"
    assert [words in text for words, text in zip(expected, seen, strict=True)] == [True] * (last + 1)
    assert len(set(seen)) > 8


async def test_it_can_be_done_with_the_keyboard_alone(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, path=f"/console/runs/{run_id}?at=6") as (page, _):
        await page.locator("#events-scroll").focus()
        await page.keyboard.press("ArrowDown")
        await page.locator("#details-title", has_text="Event 7: Input validated").wait_for()
        assert await page.locator("#details-summary").inner_text() == "valid"
        assert await page.evaluate("document.activeElement.closest('.event').id") == "event-7"
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.locator("#details-title", has_text="Call: refund").wait_for()
        await page.locator("#tab-model").focus()
        await page.keyboard.press("ArrowLeft")
        assert await page.locator("#lens-happened").is_visible()
        assert page.url.endswith(f"/console/runs/{run_id}/calls/c0")
        await page.go_back()
        await page.locator("#details-title", has_text="Event 7").wait_for()


async def test_a_run_that_goes_on_is_followed_and_whoever_reads_is_left_in_peace(on: Stage) -> None:
    run_id = await on.house.begin("Give it back.", ("refund", {"order": "D", "amount": 2.0}))
    await on.house.questions(run_id)
    before = (await on.house.service.run_queries.get_run(ADMIN, run_id)).last_seq
    async with visit(on, path=f"/console/runs/{run_id}?view=events") as (page, _), visit(on) as (reader, _):
        await reader.goto(f"/console/runs/{run_id}?at=2")
        await is_live(page)
        await is_live(reader)
        await approve(on.house, run_id)
        last = (await on.house.ended(run_id)).last_seq
        await page.locator("#run-status", has_text="Completed").wait_for()
        await page.locator("#state-title", has_text=f"State after event {last}").wait_for()
        rows = await page.locator("#events .event").evaluate_all("all => all.map((each) => Number(each.dataset.seq))")
        await reader.locator("#where", has_text=f"Event 2 of {last}").wait_for()
        assert await reader.locator("#details-title").inner_text() == "Event 2: Tools offered to the model"
    assert last > before
    assert rows == list(range(last + 1))


async def test_nothing_is_missed_while_the_server_was_away(program: Browser, tmp_path: Path) -> None:
    async with console_server(tmp_path) as served:
        port = urlsplit(served.base).port or 0
        run_id = await served.begin("Give it back.", ("refund", {"order": "E", "amount": 3.0}))
        await served.questions(run_id)
        context = visit(Stage(served, program), path=f"/console/runs/{run_id}?view=events")
        page, watch = await context.__aenter__()
        watch.expected.append("net::ERR_")
        await is_live(page)
    try:
        await page.locator('#live[data-state="again"]').wait_for()
        async with console_server(tmp_path, port) as served:
            await approve(served, run_id)
            last = (await served.ended(run_id)).last_seq
            await page.locator("#run-status", has_text="Completed").wait_for()
            await page.locator(f"#event-{last}").wait_for()
            rows = page.locator("#events .event")
            assert await rows.evaluate_all("all => all.map((each) => Number(each.dataset.seq))") == list(
                range(last + 1)
            )
            await is_live(page)
    finally:
        await context.__aexit__(None, None, None)


async def test_a_run_of_ten_thousand_events_is_shown_window_by_window(on: Stage) -> None:
    run_id, last = "run_long", 9_999
    facts: list[Fact] = [RunStarted(schema=1, agent="shop", requester="user:sam"), UserMessageReceived(text="Go on.")]
    facts += [WarningRaised(message=f"step {seq}") for seq in range(2, last + 1)]
    done = on.house.service.log.append(run_id, written(run_id, facts))
    assert done is not None
    await done
    await on.house.service.index.catch_up()
    async with visit(on, path=f"/console/runs/{run_id}?view=events") as (page, _):
        rows = page.locator("#events .event")
        assert await rows.count() == 200
        assert await page.locator(f"#event-{last}").is_visible()
        await page.get_by_role("link", name="Earlier events").click()
        await page.locator("#event-9600").wait_for(state="attached")
        assert await rows.count() == 400
        await page.locator("#place").evaluate("each => { each.value = 5000; each.dispatchEvent(new Event('input')); }")
        await page.locator("#details-title", has_text="Event 5000: Warning").wait_for()
        await page.locator("#event-5000").wait_for()
        assert await rows.count() == 200
        await page.get_by_role("link", name="Later events").click()
        await page.locator("#event-5200").wait_for(state="attached")
        await page.locator("#newest").click()
        await page.locator("#state-title", has_text=f"State after event {last}").wait_for()
        assert await page.locator(f"#event-{last}").is_visible()


def _words(state: RunStateView) -> str:
    return f"State after event {state.at_seq} {_STATES[state.state]}"
