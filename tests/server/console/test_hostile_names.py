"""Names and texts from anywhere on every page, on a narrow phone: text, all of it on the screen, and no way out."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from interlock.server.console.rendering import NAV_ENTRIES
from interlock.server.core.runs.served_agent import ServedAgent
from tests.corpora import injection
from tests.server.console.browser import assert_no_sideways, is_live
from tests.server.console.visits import ADMIN, OPERATOR, Stage, visit
from tests.server.server_process import console_server, demo_agent

pytestmark = pytest.mark.asyncio(loop_scope="session")

_LONG = "W" * 180
_CONSOLE = [attack.payload for attack in injection.load() if attack.target == "console"]
_AGENT = "<img src=x onerror=alert(1)>{{7*7}} p\u0430ypal" + _LONG
_PAGES = (
    *(entry.path for entry in NAV_ENTRIES),
    "/console/runs?q=%3Cb%3E&agent=%22%3E&status=%3Cscript%3E",
    "/console/inbox?agent=%3C/script%3E",
    "/console/inbox?q=%3C/script%3E&rule=%22%27%3E&assigned=%E2%80%AE&risk=%3Cb%3E&tool=%00",
    "/console/inbox/review?id=%3C/script%3E&id=../x&back=%22%3E%3Cb%3E",
)
_PARTS = ("/calls/c0", "/artifacts")
_FOREIGN = "main script, main iframe, main img, main meta, main style, main math, main base, main object"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on(program: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    folder: Path = tmp_path_factory.mktemp("state")
    hostile = ServedAgent(agent=demo_agent(name=_AGENT), description="</title><script>alert(1)</script>" + _LONG)
    async with console_server(folder, agents=[hostile]) as served:
        yield Stage(served, program)


async def test_hostile_names_stay_names_on_every_page_of_a_narrow_phone(on: Stage) -> None:
    words = "\r\n".join(_CONSOLE) + _LONG
    fields = {f"{at} {payload[:80]}{_LONG}": payload * 3 + _LONG for at, payload in enumerate(_CONSOLE)}
    run_id = await on.house.begin(words, ("keep", {"anything": fields}), agent=_AGENT)
    (asked,) = await on.house.questions(run_id)
    refused = await on.house.begin(words + ".", ("fail", {"why": words}), agent=_AGENT)
    await on.house.ended(refused)
    rejected = await on.house.begin(words + "!", ("refund", {"order": words, "amount": 1}), agent=_AGENT)
    (no,) = await on.house.questions(rejected)
    await on.house.service.approval_service.reject(OPERATOR, no.action_id, words)
    await on.house.ended(rejected, "failed")
    of_runs = [f"/console/runs/{run}{rest}" for run in (run_id, refused, rejected) for rest in ("", *_PARTS)]
    questions = [f"/console/inbox/{asked.action_id}", f"/console/inbox/{no.action_id}?all=1"]
    async with visit(on, "alex", phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        for path in (*_PAGES, *questions, *of_runs, f"/console/audit?verify=1&run={run_id}"):
            await page.goto(path)
            await is_live(page)
            await expect(page.locator(_FOREIGN)).to_have_count(0)
            links = await page.locator("a[href]").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
            assert all(link.startswith(("/console/", "/v1/runs/run_", "#")) for link in links), path
            assert await page.locator("main").evaluate(
                "main => !/[\\u202a-\\u202e\\u2066-\\u2069\\u200b]/u.test(main.innerText)"
            )
            await assert_no_sideways(page)
    assert (await on.house.service.run_queries.get_question(ADMIN, asked.action_id)).row.status == "PENDING"


async def test_ten_thousand_fields_are_folded_and_all_there_before_a_yes(on: Stage) -> None:
    fields = {f"field {at}": at for at in range(10_000)}
    run_id = await on.house.begin("Many.", ("keep", {"anything": fields}), agent=_AGENT)
    (asked,) = await on.house.questions(run_id)
    async with visit(on, "olga", f"/console/inbox/{asked.action_id}") as (page, _):
        await is_live(page)
        await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        await page.keyboard.press("v")

        await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        assert await page.locator("[data-arguments] li").count() == len(fields) + 1
        assert await page.locator("[data-arguments] li").last.is_visible()


async def test_a_policy_that_was_pasted_comes_back_as_it_was_and_as_text(on: Stage) -> None:
    pasted = "\n\n</textarea><script>alert(1)</script>\n{{ 7*7 }}: [\u202e"
    async with visit(on, "alex", "/console/policy") as (page, _):
        await page.get_by_label("Policy", exact=True).fill(pasted)
        await page.get_by_role("button", name="Try it").click()

        await expect(page.get_by_role("alert")).to_be_visible()
        assert await page.get_by_label("Policy", exact=True).input_value() == pasted
        await expect(page.locator("main script")).to_have_count(0)


async def test_an_approval_needs_the_keyboard_alone_from_the_first_page_on(on: Stage) -> None:
    run_id = await on.house.begin("Keys only.", ("refund", {"order": "K-1", "amount": 2}), agent=_AGENT)
    (asked,) = await on.house.questions(run_id)
    async with visit(on, "olga", f"/console/inbox/{asked.action_id}") as (page, _):
        await is_live(page)
        met: list[str] = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            met.append(await page.evaluate("document.activeElement.innerText.trim().split('\\n')[0]"))
            if met[-1].startswith("Approve"):
                break
        assert met[0] == "Skip to the content"
        await page.keyboard.press("Space")
        await expect(page.get_by_role("button", name="Yes, run it")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Approve")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Approved.")).to_be_visible()
    await on.house.ended(run_id)
