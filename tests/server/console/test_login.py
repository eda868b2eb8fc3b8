"""Signing in, and what somebody who is signed in may look at."""

import re
from collections.abc import AsyncGenerator

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from interlock.server.console.rendering import CONTENT_SECURITY_POLICY
from interlock.server.console.session import MAX_FORM_BYTES
from tests.patience import HANG_SECONDS
from tests.server.console.browser import is_live, opened, opened_as, sign_in
from tests.server.server_process import PASSWORD, Running

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_whoever_is_not_signed_in_is_led_to_the_sign_in_and_then_to_where_they_wanted(
    program: Browser, served: Running
) -> None:
    async with opened(program, served.base) as (page, _):
        await page.goto("/console/runs?status=FAILED")
        await expect(page).to_have_url(re.compile("/console/login"))
        await page.get_by_label("Name").fill("olga")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")

        await expect(page).to_have_url(f"{served.base}/console/runs?status=FAILED")
        await expect(page.get_by_label("Status")).to_have_value("FAILED")


async def test_signing_in_and_out_needs_no_script(program: Browser, served: Running) -> None:
    async with opened(program, served.base, java_script_enabled=False) as (page, _):
        await sign_in(page, "olga")
        (cookie,) = await page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Strict", "/")

        await page.locator("details.menu summary").click()
        await page.get_by_role("button", name="Sign out").click()

        await expect(page).to_have_url(f"{served.base}/console/login")
        assert await page.context.cookies() == []
        await page.context.add_cookies([cookie])  # pyright: ignore[reportArgumentType]  # as it came from there
        await page.goto("/console/")
        await expect(page).to_have_url(f"{served.base}/console/login")


async def test_a_wrong_password_is_refused_and_many_are_slowed_down(program: Browser, served: Running) -> None:
    async with opened(program, served.base) as (page, _):
        await page.goto("/console/login")
        statuses: list[int] = []
        while 429 not in statuses and len(statuses) < 10:
            await page.get_by_label("Name").fill("olga")
            await page.get_by_label("Password").fill("wrong")
            async with page.expect_navigation() as navigation:
                await page.get_by_role("button", name="Sign in", exact=True).click()
            response = await navigation.value
            assert response is not None
            statuses.append(response.status)
        await expect(page.get_by_role("alert")).to_contain_text("Try again in")
        assert statuses[0] == 401
        assert statuses[-1] == 429


async def test_a_form_without_the_token_of_its_page_does_nothing(operator: Page, served: Running) -> None:
    await operator.goto("/console/")
    await operator.evaluate("document.querySelector('input[name=csrf_token]').value = 'forged'")
    await operator.locator("details.menu summary").click()
    await operator.get_by_role("button", name="Sign out").click()

    await expect(operator.get_by_role("heading", name="Not allowed")).to_be_visible()
    await operator.goto("/console/")
    await expect(operator.get_by_role("heading", name="Dashboard")).to_be_visible()


async def test_every_page_has_the_content_policy_and_is_kept_nowhere(operator: Page, served: Running) -> None:
    await operator.goto("/console/")
    for path in ("/console/", "/console/runs", "/console/inbox", "/console/login", "/console/nothing"):
        response = await operator.request.get(path, max_redirects=0)
        if response.status != 303:
            assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-frame-options"] == "DENY"


async def test_an_operator_is_refused_the_accounts_and_an_auditor_may_look(program: Browser, served: Running) -> None:
    async with opened_as("olga", program, served) as (page, _):
        await page.goto("/console/")
        await expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        response = await page.goto("/console/admin")
        assert response is not None
        assert response.status == 403
        await expect(page.get_by_text("and may not do this")).to_be_visible()
    async with opened_as("audrey", program, served) as (page, _):
        await page.goto("/console/admin")
        await expect(page.get_by_role("row", name="alex admin")).to_be_visible()
        await expect(page.get_by_role("button", name="New key")).to_have_count(0)


async def test_an_admin_makes_an_account_and_a_key_and_takes_them_back(program: Browser, served: Running) -> None:
    async with opened_as("alex", program, served) as (page, _):
        await page.goto("/console/admin")
        await page.get_by_role("button", name="New account").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("Name").fill("nora")
        await form.get_by_label("Password").fill("short")
        await form.get_by_role("button", name="Create").click()
        await expect(form.get_by_role("alert")).to_contain_text("password")
        await form.get_by_label("Password").fill("a longer pass phrase")
        await form.get_by_label("operator").check()
        await form.get_by_label("For runs of all agents").uncheck()
        await form.get_by_label("Agents", exact=True).fill("shop")
        await form.get_by_role("button", name="Create").click()
        await expect(page.get_by_role("row", name="nora operator shop")).to_be_visible()

        await page.get_by_role("button", name="Change nora").click()
        await form.get_by_label("Disabled").check()
        await form.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("row", name="nora operator shop").get_by_text("Disabled")).to_be_visible()

        await page.get_by_role("button", name="New key").click()
        await form.get_by_label("Name").fill("bot")
        await form.get_by_label("For runs of all agents").uncheck()
        await form.get_by_label("Agents", exact=True).fill("shop")
        await form.get_by_role("button", name="Create").click()
        await expect(page.locator("[data-secret]")).to_have_text(re.compile("^ik_"))
        await page.keyboard.press("Escape")
        secret = await page.locator("[data-secret]").inner_text()
        assert (await page.request.get("/v1/me", headers={"Authorization": f"Bearer {secret}"})).status == 200
        await page.get_by_role("button", name="I have it").click()
        assert secret not in await page.content()

        await page.get_by_role("button", name="Revoke bot").click()
        await form.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_text("Revoked")).to_be_visible()


async def test_an_end_of_the_sign_in_is_noticed_by_an_open_page(operator: Page, served: Running) -> None:
    await operator.goto("/console/runs")
    await is_live(operator)

    await served.service.sessions.end_all("olga", by="user:alex")
    await served.begin("Something happens.")

    await expect(operator).to_have_url(re.compile(r"/console/login\?next=/console/runs"))


async def _posted(served: Running, body: bytes, *, length: bool) -> int:
    """The status for a form that is sent bit by bit, or with its length."""
    async with httpx2.AsyncClient(base_url=served.base, timeout=HANG_SECONDS) as client:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": served.base}
        content = body if length else _pieces(body)
        return (await client.post("/console/login", content=content, headers=headers)).status_code


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(body), 64 << 10):
        yield body[at : at + (64 << 10)]


@pytest.mark.parametrize("length", [True, False])
async def test_a_form_may_be_as_long_as_a_form_is_and_no_longer(served: Running, length: bool) -> None:
    fits = b"name=olga&password=no&rest=".ljust(MAX_FORM_BYTES, b"x")
    assert await _posted(served, fits, length=length) == 401
    assert await _posted(served, fits + b"x", length=length) == 413


async def test_a_form_of_another_site_is_refused(served: Running) -> None:
    async with httpx2.AsyncClient(base_url=served.base, timeout=HANG_SECONDS) as client:
        form = {"name": "olga", "password": PASSWORD}
        answer = await client.post("/console/login", data=form, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_nonsense_in_an_address_is_an_answer_in_words(operator: Page, served: Running) -> None:
    nonsense = (
        "/runs?cursor=x",
        "/runs?q=%ED%A0%80%00",
        "/inbox/act_none",
        "/inbox?cursor=%00",
        "/nothing",
        "/static/x",
    )
    for path in (*nonsense, "/runs?status=NOTHING&limit=-1", "/inbox?all=%F0%9F", "/runs/run_none", "/login?next=//x"):
        response = await operator.request.get(f"/console{path}")
        assert response.status < 500, path
