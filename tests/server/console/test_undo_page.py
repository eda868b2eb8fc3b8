"""Undo in a real browser: from the page of a run to the preview, and what was shown is undone."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.server.changing import ChangingServer, changing_server
from tests.server.console.browser import assert_accessible, assert_no_sideways
from tests.server.console.visits import Stage, visit

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChangingServer]:
    async with changing_server(tmp_path_factory.mktemp("undo"), console=True) as made:
        for name in ("olga", "audrey", "sam"):
            await made.server.person(name)
        yield made


@pytest.fixture
def stage(scene: ChangingServer, program: Browser) -> Stage:
    return Stage(scene.server, program)


@pytest.mark.requirement("P28")
async def test_a_run_is_undone_with_the_keyboard(scene: ChangingServer, stage: Stage) -> None:
    run_id = await scene.change("a1", "a2")
    async with visit(stage, "olga", f"/console/runs/{run_id}") as (page, _):
        await page.get_by_role("link", name="Undo changes").press("Enter")
        await expect(page.locator("#preview-title")).to_have_text("2 files can be put back")
        await expect(page.locator("[data-changes] li")).to_have_count(2)
        await expect(page.get_by_role("region", name="Changes, line by line")).to_contain_text("second a1")
        assert len(scene.files("a")) == 2
        await page.get_by_role("button", name="Undo these changes").press("Enter")
        await expect(page.locator("[data-done]")).to_contain_text("2 files put back.")
        assert scene.files("a") == {}
        assert await page.get_by_role("button", name="Undo these changes").count() == 0
        # Both ways: to the undo's run, to the run that it undid, and back.
        await page.get_by_role("link", name="Run of the undo").click()
        await expect(page.locator("h1")).to_have_text("Run of undo")
        await page.get_by_role("link", name=run_id, exact=True).click()
        await page.wait_for_url(f"**/runs/{run_id}")
        await expect(page.get_by_text("Undone by")).to_be_visible()


@pytest.mark.requirement("P28")
async def test_what_changed_since_it_was_shown_is_asked_again(scene: ChangingServer, stage: Stage) -> None:
    run_id = await scene.change("b1", "b2")
    async with visit(stage, "olga", f"/console/runs/{run_id}/undo") as (page, _):
        (scene.workspace / "b2").write_text("<b>mine</b>\n")
        await page.get_by_role("button", name="Undo these changes").click()
        await expect(page.locator("[data-changed]")).to_be_visible()
        await expect(page.locator("[data-skipped]")).to_contain_text("b2: it was changed since by another program")
        assert scene.files("b") == {"b1": "second b1\n", "b2": "<b>mine</b>\n"}
        await page.get_by_role("button", name="Undo these changes").click()
        await expect(page.locator("[data-done]")).to_contain_text("1 file put back; 1 file left as it is.")
    assert scene.files("b") == {"b2": "<b>mine</b>\n"}


async def test_the_preview_fits_a_phone_in_light_and_dark(scene: ChangingServer, stage: Stage) -> None:
    run_id = await scene.change(f"c-{'long' * 30}", "c2")
    (scene.workspace / "c2").write_text("mine\n")
    async with visit(stage, "olga", f"/console/runs/{run_id}/undo", phone=True) as (page, _):
        await assert_no_sideways(page)
        await assert_accessible(page)


async def test_only_who_may_undo_finds_the_button(scene: ChangingServer) -> None:
    changed, other = await scene.change("d1"), await scene.change("d2", agent="other")
    olga, audrey, sam = [await scene.server.person(name) for name in ("olga", "audrey", "sam")]
    pages = [
        await client.get(f"/console/runs/{run}") for client, run in ((olga, changed), (olga, other), (audrey, changed))
    ]
    assert ["Undo changes" in page.text for page in pages] == [True, False, False]
    answers = [await client.get(f"/console/runs/{changed}/undo") for client in (olga, audrey, sam)]
    assert [answer.status_code for answer in answers] == [200, 403, 404]
    forged = await olga.post(f"/console/runs/{changed}/undo", data={"digest": "0", "csrf_token": "0"})
    assert (forged.status_code, (await olga.get(f"/console/runs/{other}/undo")).status_code) == (403, 409)
