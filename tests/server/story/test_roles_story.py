"""Who is not trusted with something is not offered it, and refused it when they force it from their own page."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.server.console.browser import is_live, opened, sign_in
from tests.server.story.agents import task
from tests.server.story.pages import asked, forced
from tests.server.story.process import PASSWORD, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUND = task("Give it back.", ("refund", {"order": "B-7", "amount": 5.0}))
#: Changes that only operators and admins may make, or admins alone.
_NOT_FOR_OTHERS = {
    "/v1/runs": {"agent": "shop", "task": "Nothing."},
    "/v1/approvals/{action}/approve": {"payload_hash": "{hash}"},
    "/v1/approvals/{action}/reject": {"reason": "Because."},
    "/v1/keys": {"name": "mine", "roles": ["admin"]},
    "/v1/accounts": {"name": "me-too", "password": PASSWORD, "roles": ["admin"]},
}


async def test_an_auditor_looks_at_everything_and_changes_nothing(program: Browser, served: Served) -> None:
    before, run_id = served.ledger, served.begin(REFUND)
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "audrey", f"/console/runs/{run_id}")
        await is_live(page)
        action, hash_ = await asked(page, run_id)
        assert await page.get_by_role("button", name="Cancel run").count() == 0
        await page.get_by_role("link", name="1 open question").click()
        await expect(page.locator("[data-question]")).to_contain_text("Money leaves the house.")
        for name in ("Approve", "Reject", "Edit"):
            assert await page.get_by_role("button", name=name).count() == 0
        await page.goto("/console/runs")
        assert await page.get_by_role("button", name="New run").count() == 0
        await page.goto("/console/admin")
        assert await page.get_by_role("button", name="New").count() == 0
        for path, body in (_NOT_FOR_OTHERS | {f"/v1/runs/{run_id}/cancel": {"reason": "No."}}).items():
            wish = {key: hash_ if value == "{hash}" else value for key, value in body.items()}
            assert await forced(page, path.replace("{action}", action), wish) == 403, path
    assert (served.run(run_id)["status"], served.ledger) == ("PAUSED_APPROVAL", before)


async def test_somebody_without_roles_has_their_own_runs_and_nothing_else(program: Browser, served: Served) -> None:
    before, own, other = served.ledger, served.begin(REFUND), served.begin(REFUND, on_behalf_of="audrey")
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "sam", "/console/runs")
        await is_live(page)
        for name in ("Policy", "Audit", "Admin"):
            assert await page.get_by_role("navigation").get_by_role("link", name=name).count() == 0
        await expect(page.locator(f'tr[data-key="{own}"]')).to_be_visible()
        assert await page.locator(f'tr[data-key="{other}"]').count() == 0
        await page.goto(f"/console/runs/{own}")
        action, hash_ = await asked(page, own)
        assert await page.get_by_text("Export", exact=True).count() == 0
        for path, body in _NOT_FOR_OTHERS.items():
            wish = {key: hash_ if value == "{hash}" else value for key, value in body.items()}
            assert await forced(page, path.replace("{action}", action), wish) == 403, path
        for path in (
            "/v1/audit/log",
            "/v1/keys",
            "/v1/accounts",
            "/v1/agents/shop/policy",
            f"/v1/runs/{own}/audit/export",
        ):
            assert await forced(page, path, method="GET") == 403, path
        for path in (f"/v1/runs/{other}", f"/v1/runs/{other}/events", f"/v1/runs/{other}/state?at=0"):
            assert await forced(page, path, method="GET") == 404, path
    assert (served.run(own)["status"], served.ledger) == ("PAUSED_APPROVAL", before)


async def test_signing_out_ends_it_on_every_open_page(program: Browser, served: Served) -> None:
    async with opened(program, served.base) as (page, _):
        await sign_in(page, "sam", "/console/runs")
        cookies = await page.context.cookies()
        second = await page.context.new_page()
        await second.goto("/console/runs")
        await is_live(second)
        await page.locator("details.menu summary").click()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/console/login")
        served.begin(REFUND)  # something happens, which the second page would like to show
        await second.wait_for_url(re.compile(r"/console/login\?next=\S+runs$"))
        await page.context.add_cookies(cookies)  # pyright: ignore[reportArgumentType]  # as they came from there
        assert (await page.request.get("/v1/me")).status == 401


async def test_guessing_a_password_soon_has_to_wait_even_with_the_right_one(program: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        async with opened(program, server.base) as (page, _):
            await page.goto("/console/login")
            for _ in range(5):
                await tried(page, "wrong")
                await expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong.")
            await tried(page, server.password)
            await expect(page.get_by_role("alert")).to_contain_text("Try again in")
            answer = await page.request.post("/v1/session", data={"name": "admin", "password": server.password})
            assert (answer.status, int(answer.headers["retry-after"]) > 5) == (429, True)
        server.stop()


async def tried(page: Page, password: str) -> None:
    await page.get_by_label("Name").fill("admin")
    await page.get_by_label("Password").fill(password)
    async with page.expect_navigation():
        await page.get_by_role("button", name="Sign in", exact=True).click()
