"""The server is killed while somebody looks: their page finds it again, and everything is as it was."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.server.console.browser import is_live, needed_chromium, opened, sign_in
from tests.server.story.agents import task
from tests.server.story.process import serving, settled

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUND = task("Give it back.", ("refund", {"order": "B-7", "amount": 5.0}))


async def test_a_run_that_waits_survives_the_server_and_is_approved_on_the_page_that_stayed_open(
    program: Browser, tmp_path: Path
) -> None:
    needed_chromium()
    with ExitStack() as stack:
        first = stack.enter_context(settled(tmp_path))
        run_id = first.begin(REFUND)
        async with opened(program, first.base) as (page, watch):
            watch.expected.append("net::ERR_")
            await sign_in(page, "olga", "/console/inbox")
            await page.get_by_role("link", name="refund: ").click()
            watching = await page.context.new_page()
            await watching.goto(f"/console/runs/{run_id}?view=events")
            await is_live(page)
            await is_live(watching)
            before = await (await page.request.get(f"/v1/runs/{run_id}/events?view=log&limit=500")).json()

            first.kill()
            for each in (page, watching):
                await each.locator('#live[data-state="again"]').wait_for()
            second = stack.enter_context(serving(tmp_path, first.port))
            second.key = first.key
            for each in (page, watching):
                await is_live(each)
            await expect(watching.locator("#run-status")).to_contain_text("Waiting for approval")
            assert second.events(run_id, "log") == before["events"]
            assert second.ledger == []

            await page.get_by_role("button", name="Approve").click()
            await page.get_by_role("button", name="Yes, run it").click()
            await expect(watching.locator("#run-status")).to_contain_text("Completed")
            last = second.run(run_id)["last_seq"]
            await watching.locator(f"#event-{last}").wait_for()
            rows = watching.locator("#events .event")
            seqs = await rows.evaluate_all("all => all.map((each) => Number(each.dataset.seq))")
            assert seqs == list(range(last + 1))
        assert second.ledger == ["B-7 5.0"]
        second.stop()
