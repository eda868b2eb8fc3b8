"""The audit page in a real browser: exports that others can check, checks that find the bad event, and who did what."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Download

from tests.log_rows import edit_events
from tests.patience import HANG_SECONDS
from tests.server.console.browser import assert_accessible, assert_no_sideways
from tests.server.console.visits import Stage, edited_refund, visit

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.requirement("R170", "R173")
async def test_an_export_is_proved_by_the_verifier_and_the_key_of_the_page(on: Stage, tmp_path: Path) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "audrey", "/console/audit") as (page, _):
        async with page.expect_download() as came:
            await page.get_by_role("link", name="Download the verifier").click()
        verifier = await _kept(await came.value, tmp_path / "verifier.py")
        command = await page.get_by_role("region", name="Command to verify").inner_text()
        await page.locator("#export-run").fill(run_id)
        async with page.expect_download() as came:
            await page.get_by_role("button", name="Export").click()
        export = await _kept(await came.value, tmp_path / "export.ndjson")
    key = command.split("--key ")[1]
    assert _verified(verifier, export, key) == (0, True)
    export.write_bytes(export.read_bytes().replace(b"Half is enough", b"Half is plenty"))
    assert _verified(verifier, export, key)[0] == 1


async def test_the_export_menu_of_a_run_has_every_schema(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "audrey", f"/console/runs/{run_id}") as (page, _):
        await page.get_by_text("Export", exact=True).click()
        links = await page.locator(".export-menu a").evaluate_all("all => all.map((each) => each.getAttribute('href'))")
        answers = [await page.request.get(link) for link in links]
    assert {re.findall(r"schema=(\w+)", link)[0] for link in links} == {"interlock", "splunk_hec", "ecs", "ocsf", "cef"}
    assert [answer.status for answer in answers] == [200] * 10


async def test_the_first_bad_event_is_named(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "audrey", f"/console/audit?run={run_id}&verify=1") as (page, _):
        assert "in one unbroken chain" in await page.locator("#proof").inner_text()
    await asyncio.to_thread(_damage, on.house.service.state_folder / "runs.db", run_id)
    async with visit(on, "audrey", "/console/audit") as (page, _):
        await page.locator("#verify-run").fill(run_id)
        await page.get_by_role("button", name="Verify this run").click()
        words = await page.locator("#proof").inner_text()
        assert "Verification failed" in words
        assert "The first bad event is event 4" in words
        await assert_accessible(page)
        answer = await page.request.get(f"/console/runs/{run_id}")
        assert (answer.status, "The events of this run are not what was written" in await answer.text()) == (200, True)
        await page.get_by_role("link", name="Verify everything").click()
        assert f"{run_id}, event 4" in await page.locator("#check").inner_text()


async def test_the_journal_says_who_took_an_export_and_who_was_refused(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "olga") as (page, _):
        answer = await page.request.get(f"/console/audit/export?run={run_id}")
        assert answer.status == 403
        await page.goto("/console/audit")
        assert not await page.get_by_text("Journal of the server").is_visible()
    async with visit(on, "audrey") as (page, _):
        await page.request.get(f"/console/audit/export?run={run_id}&schema=ecs")
        await page.goto("/console/audit")
        rows = [" ".join(row.split()) for row in await page.get_by_role("row").all_inner_texts()]
        await assert_accessible(page)
    assert any("user:audrey" in row and f"audit.exported {run_id}" in row for row in rows)
    assert any("user:olga" in row and f"audit.export {run_id} refused" in row for row in rows)


async def test_it_fits_a_narrow_phone(on: Stage) -> None:
    async with visit(on, "audrey", phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.goto("/console/audit")
        await assert_no_sideways(page)


async def _kept(download: Download, path: Path) -> Path:
    await download.save_as(path)
    return path


def _verified(verifier: Path, export: Path, key: str) -> tuple[int, bool]:
    """By a Python that knows nothing of Interlock."""
    ran = subprocess.run(
        [sys.executable, "-I", verifier, export, "--key", key],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return ran.returncode, ran.stdout.startswith("OK: ")


def _damage(path: Path, run_id: str) -> None:
    """With other tools than ours."""
    statement = (
        "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), '\"seq\":4', '\"seq\": 4') AS BLOB) "
        "WHERE seq = 4 AND run = (SELECT number FROM runs WHERE run_id = ?)"
    )
    edit_events(path, statement, parameters=(run_id,))
