"""An auditor's day in a real browser: a run is looked at event by event, exported, and proved or found out."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.audit import standalone_verifier
from tests.log_rows import edit_events
from tests.patience import HANG_SECONDS
from tests.server.console.browser import opened, sign_in
from tests.server.story.agents import task
from tests.server.story.process import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

_STATES = {"running": "Running", "paused_approval": "Waiting for approval", "completed": "Completed"}


@pytest.fixture(scope="session")
def refunded(served: Served) -> str:
    """A run that is over: it asked, and was allowed to."""
    run_id = served.begin(
        task("Half of it.", ("lookup", {"order": "B-7"}), ("refund", {"order": "B-7", "amount": 5.0}))
    )
    served.approve(run_id)
    return run_id


async def test_every_event_shows_the_state_of_its_moment(program: Browser, served: Served, refunded: str) -> None:
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "audrey", f"/console/runs/{refunded}?view=events")
        last = served.run(refunded)["last_seq"]
        await page.locator("#place").focus()
        await page.keyboard.press("Home")
        shown: list[str] = []
        for seq in range(last + 1):
            await page.locator("#state-title", has_text=f"State after event {seq}").wait_for()
            then = await (await page.request.get(f"/v1/runs/{refunded}/state?at={seq}")).json()
            await expect(page.locator("#state")).to_contain_text(_STATES[then["state"]])
            shown.append(then["state"])
            await page.keyboard.press("ArrowRight")
        assert list(dict.fromkeys(shown)) == list(_STATES)
        asked = shown.index("paused_approval")
        await page.goto(f"/console/runs/{refunded}?at={asked}")
        await expect(page.locator("#state")).to_contain_text("Waiting for approval")
        await page.locator("#newest").click()
        await expect(page.locator("#state")).to_contain_text("Completed")


@pytest.mark.requirement("R169", "R170", "R173", "P11")
async def test_an_export_proves_the_run_and_whatever_was_done_to_it_is_found(
    program: Browser, served: Served, refunded: str, tmp_path: Path
) -> None:
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "audrey", f"/console/runs/{refunded}")
        as_lines = await exported(page, "interlock", "ndjson", tmp_path / "run.ndjson")
        as_json = await exported(page, "interlock", "json", tmp_path / "run.json")
        await page.goto("/console/audit")
        key = (await page.get_by_role("region", name="Command to verify").inner_text()).split("--key ")[1]
    assert (verified(as_lines, key)[0], verified(as_json, key)[0]) == (0, 0)
    lines = as_lines.read_bytes().splitlines(keepends=True)
    assert len(lines) == served.run(refunded)["last_seq"] + 2  # the last line is the signed checkpoint
    edited = [line.replace(b"Half is enough", b"Half is plenty") for line in lines]
    place = next(at for at, line in enumerate(lines) if line != edited[at])
    tampered = {
        f"event {place} ": edited,
        "event 3 ": [*lines[:3], *lines[4:]],
        "event 5 ": [*lines[:5], lines[6], lines[5], *lines[7:]],
        "event 2 ": [*lines[:2], lines[1], *lines[2:]],
        "missing at the end": [*lines[:-3], lines[-1]],
    }
    for words, other in tampered.items():
        as_lines.write_bytes(b"".join(other))
        code, said = verified(as_lines, key)
        assert (code, words in said) == (1, True), said


@pytest.mark.requirement("R171")
async def test_other_systems_get_every_event_in_their_own_shape(
    program: Browser, served: Served, refunded: str, tmp_path: Path
) -> None:
    count = served.run(refunded)["last_seq"] + 1
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "audrey", f"/console/runs/{refunded}")
        for schema in ("splunk_hec", "ecs", "ocsf", "cef"):
            export = await exported(page, schema, "ndjson", tmp_path / schema)
            assert len(export.read_bytes().splitlines()) == count


@pytest.mark.requirement("P11")
async def test_a_log_that_was_changed_behind_the_servers_back_is_found(program: Browser, served: Served) -> None:
    run_id = served.begin(task("Just look.", ("lookup", {"order": "B-1"})))
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "audrey", f"/console/runs/{run_id}")
        await expect(page.locator("#run-status")).to_contain_text("Completed")
        await page.goto(f"/console/audit?run={run_id}&verify=1")
        await expect(page.locator("#proof")).to_contain_text("in one unbroken chain")
        change(served.folder / "runs.db", run_id, 4)
        await page.get_by_role("button", name="Verify this run").click()
        await expect(page.locator("#proof")).to_contain_text("The first bad event is event 4")
        answer = await (await page.request.get(f"/v1/runs/{run_id}/audit/verify")).json()
        assert answer["ok"] is False


async def exported(page: Page, schema: str, form: str, path: Path) -> Path:
    """What the browser downloads for a link of the run's menu."""
    if not await page.locator(".export-menu").is_visible():
        await page.get_by_text("Export", exact=True).click()
    async with page.expect_download() as came:
        await page.locator(f'a[download][href$="format={form}&schema={schema}"]').click()
    await (await came.value).save_as(path)
    return path


def verified(export: Path, key: str) -> tuple[int, str]:
    """By a Python that knows nothing of Interlock."""
    command = [sys.executable, "-I", standalone_verifier.__file__, export, "--key", key]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    return ran.returncode, ran.stdout + ran.stderr


def change(path: Path, run_id: str, seq: int) -> None:
    """With other tools than ours."""
    statement = (
        "UPDATE events SET body = CAST(CAST(body AS TEXT) || ' ' AS BLOB)"
        " WHERE seq = ? AND run = (SELECT number FROM runs WHERE run_id = ?)"
    )
    assert edit_events(path, statement, parameters=(seq, run_id)) == 1
