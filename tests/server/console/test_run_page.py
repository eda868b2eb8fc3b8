"""The page of a run in a real browser: what it shows, to whom, and that it is only ever shown."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import ViewportSize, expect

from interlock.domain.event import RunStarted, UserMessageReceived, decode_event
from interlock.rendering.times import format_utc
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.display_reader import unescape_invisible
from tests.server.console.browser import DESKTOP, PHONE, assert_accessible, assert_no_sideways, opened_as
from tests.server.console.visits import ADMIN, Stage, edited_refund, visit, written

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_call_is_shown_in_three_lenses_that_do_not_mix(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, path=f"/console/runs/{run_id}/calls/c0") as (page, _):
        panels = {name: page.locator(f"#lens-{name}") for name in ("model", "person", "happened")}
        assert [await panel.is_visible() for panel in panels.values()] == [True, False, False]
        model = await panels["model"].inner_text()
        await page.get_by_role("tab", name="The person saw").click()
        person = await panels["person"].inner_text()
        await page.get_by_role("tab", name="What happened").click()
        happened = await panels["happened"].inner_text()
        assert not await panels["person"].is_visible()
    assert "amount = 10.0" in model
    assert "money-needs-a-person" in person
    assert "user:olga" in person
    assert "Half is enough." in person
    assert "What ran is not what the model wrote" in happened
    assert 'removed: "amount": 10.0' in " ".join(happened.split())
    assert 'added: "amount": 5.0' in " ".join(happened.split())


@pytest.mark.requirement("R164")
async def test_every_id_has_an_address_that_leads_to_it(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    *_, action = await on.house.service.run_queries.list_actions(ADMIN, run_id)
    async with visit(on) as (page, _):
        await page.goto(f"/console/runs/{run_id}?at=4")
        assert await page.locator("#details-title").inner_text() == "Event 4: Model answered"
        assert (await page.locator("#details-summary").inner_text()).startswith("1 call, ")
        await page.goto(f"/console/runs/{run_id}#event-6")
        await page.locator("#details-title", has_text="Event 6: Call proposed").wait_for()
        assert (await page.locator("#details-summary").inner_text()).startswith("refund {")
        await page.goto(f"/console/runs/{run_id}/calls/c0")
        assert await page.locator("#details-title").inner_text() == "Call: refund"
        await page.goto(f"/console/runs/{run_id}/actions/{action.action_id}")
        assert await page.get_by_role("tab", name="The person saw").get_attribute("aria-selected") == "true"
        assert action.payload_hash in await page.locator("#lens-person").inner_text()
        await page.locator("#lens-person").get_by_role("link", name=f"event {action.asked_seq}").click()
        await page.get_by_role("link", name="its question").click()
        assert page.url.endswith(f"/actions/{action.action_id}")


async def test_an_event_is_there_as_json_with_the_hash_of_the_log(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    entry = (await on.house.service.log.read(run_id, 3, 1))[0]
    async with visit(on, path=f"/console/runs/{run_id}?at=4") as (page, _):
        await page.get_by_text("Raw JSON").click()
        text = await page.locator("#raw-event").inner_text()
        assert entry.hash.hex() in await page.locator("#details").inner_text()
    assert json.loads(text) == json.loads(entry.body)


async def test_who_may_not_see_a_run_is_told_that_there_is_none(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "sam", f"/console/runs/{run_id}") as (page, _):
        assert await page.locator("h1").inner_text() == "Run of shop"
        assert not await page.get_by_text("Export", exact=True).is_visible()
    await on.house.service.accounts.create("zoe", "correct horse battery", by="test")
    async with visit(on, "zoe") as (page, _):
        for path in ("", "/calls/c0", "/artifacts", "/parts/at?at=1", "/parts/timeline", "/parts/calls/c0"):
            answer = await page.request.get(f"/console/runs/{run_id}{path}")
            assert answer.status == 404


async def test_a_run_is_cancelled_with_a_reason_by_those_who_may(on: Stage) -> None:
    run_id = await on.house.begin("Wait.", ("refund", {"order": "C", "amount": 1.0}))
    await on.house.questions(run_id)
    async with visit(on, "audrey", f"/console/runs/{run_id}") as (page, _):
        assert await page.get_by_role("button", name="Cancel run").count() == 0
    async with visit(on, "olga", f"/console/runs/{run_id}") as (page, _):
        await page.get_by_role("button", name="Cancel run").click()
        await page.get_by_label("Why").fill("Not today.")
        await page.get_by_role("button", name="Cancel the run").click()
        await page.locator("#run-status", has_text="Cancelled").wait_for()
        await page.locator(".entry.end", has_text="Run cancelled").get_by_text("Not today.").wait_for()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_every_export_can_be_clicked(on: Stage, size: ViewportSize) -> None:
    run_id = await on.house.begin("Wait.", ("refund", {"order": "C", "amount": 1.0}))
    await on.house.questions(run_id)
    async with visit(on, path=f"/console/runs/{run_id}") as (page, _):
        await page.set_viewport_size(size)
        await page.get_by_text("Export", exact=True).click()
        for link in (page.locator(".export-menu a").first, page.locator(".export-menu a").last):
            await link.click(trial=True, timeout=1_000 * HANG_SECONDS)


async def test_artifacts_are_listed_shown_as_text_and_downloaded(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    (first, *_) = await on.house.service.run_queries.list_artifacts(ADMIN, run_id)
    async with visit(on, path=f"/console/runs/{run_id}/artifacts") as (page, _):
        await page.get_by_role("link", name="View").first.click()
        assert "lookup" in await page.get_by_role("region", name="Content").inner_text()
        async with page.expect_download() as came:
            await page.get_by_role("link", name="Download").click()
        kept = (await (await came.value).path()).read_bytes()
    assert len(kept) == first.size_bytes


#: Each would do something if any part of a page took it for more than text.
HOSTILE = (
    "<script>fetch('/v1/approvals/1/approve',{method:'POST'})</script>",
    "<svg/onload=alert(1)>",
    "[x](java\tscript:alert(1)) [y](JaVaScRiPt&colon;alert(1)) https://attacker.example/",
    "<form action=/approvals/1/approve method=post><button style='position:fixed;inset:0;opacity:0'>x</button></form>",
    '<iframe srcdoc="<script>parent.approve()</script>"></iframe>',
    "<meta http-equiv=refresh content='0;url=https://attacker.example/'>",
    "{{constructor.constructor('alert(1)')()}} ${7*7} <%= 7*7 %>",
    "<input id=details name=payload_hash value=0000><div id=events data-first=0>",
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror=alert(1)&gt;">',
    "safe\u202e gpj.exe \u200b\u2066 \U000e0041 end",
)


async def test_hostile_text_stays_text_in_every_part_of_the_page(on: Stage) -> None:
    everything = dict(zip("abcdefghij", HOSTILE, strict=True))
    run_id = await on.house.begin(
        " ".join(HOSTILE), ("fail", {"why": "\n".join(HOSTILE)}), ("keep", {"anything": everything})
    )
    (asked,) = await on.house.questions(run_id)
    async with visit(on) as (page, watch):
        await page.goto(f"/console/runs/{run_id}/actions/{asked.action_id}")
        shown = await page.locator("#lens-person .outline .text .rest").all_inner_texts()
        assert [unescape_invisible(text) for text in shown] == list(HOSTILE)
        await page.goto(f"/console/runs/{run_id}/calls/c0")
        await page.get_by_role("tab", name="What happened").click()
        for seq in range((await on.house.service.run_queries.get_run(ADMIN, run_id)).last_seq, 0, -4):
            await page.locator("#place").fill(str(seq))
            await page.locator("#details-title", has_text=f"Event {seq}:").wait_for()
        links = await page.locator("main a").evaluate_all("all => all.map((each) => each.href)")
        assert await page.locator("main form").count() == 2
        assert watch.faults == []
    assert all(link.startswith(on.house.base) for link in links)


async def test_runs_inside_and_forks_are_linked_both_ways_as_far_as_the_log_says(on: Stage) -> None:
    parent = await edited_refund(on.house)
    inside = RunStarted(schema=1, agent="shop", requester="user:sam", parent_run_id=parent, parent_call_id="c0")
    forked = RunStarted(schema=1, agent="shop", requester="user:sam", forked_from=parent, forked_at=4)
    for run_id, began in (("run_inside", inside), ("run_forked", forked)):
        done = on.house.service.log.append(run_id, written(run_id, [began, UserMessageReceived(text="Look.")]))
        assert done is not None
        await done
    async with visit(on, path=f"/console/runs/{parent}") as (page, _):
        await page.locator(".tree li li").first.get_by_role("link", name="shop").click()
        assert page.url.endswith("/console/runs/run_inside")
        await page.get_by_role("link", name=parent, exact=True).click()
        assert page.url.endswith(f"/console/runs/{parent}/calls/c0")
        await page.goto("/console/runs/run_forked")
        await page.get_by_role("link", name=f"{parent} after event 4", exact=True).click()
        assert await page.locator("#details-title").inner_text() == "Event 4: Model answered"
        assert (await page.locator("#details-summary").inner_text()).startswith("1 call, ")


async def test_it_can_be_read_without_scripts(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, java_script_enabled=False) as (page, _):
        await page.goto(f"/console/runs/{run_id}")
        assert "Half is enough." in await page.locator(".turns").inner_text()
        await page.get_by_role("link", name="Events", exact=True).click()
        await page.get_by_role("link", name="Event 8").click()
        assert await page.locator("#details-title").inner_text() == "Event 8: Policy decision"
        assert "money-needs-a-person" in await page.locator("#details-summary").inner_text()
        await page.get_by_role("button", name="Event after").click()
        assert await page.locator("#details-title").inner_text() == "Event 9: Asked for approval"
        await page.get_by_role("link", name="its call").click()
        assert await page.locator(".lens").count() == 3
        assert await page.locator("#lens-happened").is_visible()


async def test_everybody_can_use_it(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    asking = await on.house.begin("Wait.", ("edit_page", {"path": "a", "old_string": "x\ny", "new_string": "x\nz"}))
    await on.house.questions(asking)
    async with visit(on) as (page, _):
        for path in (f"{run_id}?view=events", f"{run_id}/artifacts", f"{asking}/calls/c0"):
            await page.goto(f"/console/runs/{path}")
            if path.endswith("c0"):
                await page.get_by_role("tab", name="The person saw").click()
            await assert_accessible(page)


async def test_it_fits_a_narrow_phone(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        for path in (f"{run_id}?view=events", f"{run_id}/calls/c0", f"{run_id}/artifacts"):
            await page.goto(f"/console/runs/{path}")
            await assert_no_sideways(page)


async def test_times_are_local_with_utc_on_hover(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    started = decode_event((await on.house.service.log.read(run_id, -1, 1))[0]).at
    tokyo = datetime.fromtimestamp(started // 10**9, ZoneInfo("Asia/Tokyo"))
    path, elsewhere = f"/console/runs/{run_id}?at=0", {"timezone_id": "Asia/Tokyo", "locale": "en-GB"}
    async with opened_as("olga", on.browser, on.house, **elsewhere) as (page, _):
        await page.goto(path)
        shown = page.locator("#state time[data-local]").first
        await expect(shown).to_contain_text(f"{tokyo:%H:%M:%S}")
        assert await shown.get_attribute("title") == format_utc(started)
        assert f"data-local>{format_utc(started)}</time>" in await (await page.request.get(path)).text()
