"""Signing in, and what somebody who is signed in may look at."""

import re

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.console.pages import POLICY
from tests.console.browser import opened, opened_as, sign_in
from tests.console.server import PASSWORD, House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_whoever_is_not_signed_in_is_led_to_the_sign_in_and_then_to_where_they_wanted(
    program: Browser, served: House
) -> None:
    async with opened(program, served.base) as (page, _):
        await page.goto("/console/runs?status=FAILED")
        await expect(page).to_have_url(re.compile("/console/login"))
        await page.get_by_label("Name").fill("olga")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")

        await expect(page).to_have_url(f"{served.base}/console/runs?status=FAILED")
        await expect(page.get_by_label("Status")).to_have_value("FAILED")


async def test_signing_in_and_out_needs_no_script(program: Browser, served: House) -> None:
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


async def test_a_wrong_password_is_refused_and_many_are_slowed_down(program: Browser, served: House) -> None:
    async with opened(program, served.base) as (page, _):
        await page.goto("/console/login")
        statuses: list[int] = []
        for _ in range(8):
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


async def test_a_form_without_the_token_of_its_page_does_nothing(operator: Page, served: House) -> None:
    await operator.goto("/console/")
    await operator.evaluate("document.querySelector('input[name=csrf_token]').value = 'forged'")
    await operator.locator("details.menu summary").click()
    await operator.get_by_role("button", name="Sign out").click()

    await expect(operator.get_by_role("heading", name="Not allowed")).to_be_visible()
    await operator.goto("/console/")
    await expect(operator.get_by_role("heading", name="Dashboard")).to_be_visible()


async def test_every_page_has_the_content_policy_and_is_kept_nowhere(operator: Page, served: House) -> None:
    await operator.goto("/console/")
    for path in ("/console/", "/console/runs", "/console/inbox", "/console/login", "/console/nothing"):
        response = await operator.request.get(path, max_redirects=0)
        if response.status != 303:
            assert response.headers["content-security-policy"] == POLICY
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-frame-options"] == "DENY"


async def test_an_operator_is_refused_the_accounts_and_an_auditor_may_look(program: Browser, served: House) -> None:
    async with opened_as("olga", program, served) as (page, _):
        await page.goto("/console/")
        await expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        response = await page.goto("/console/admin")
        assert response is not None
        assert response.status == 403
        await expect(page.get_by_text("olga has operator and may not do this")).to_be_visible()
    async with opened_as("audrey", program, served) as (page, _):
        await page.goto("/console/admin")
        await expect(page.get_by_role("row", name="alex admin")).to_be_visible()
        await expect(page.get_by_role("button", name="New key")).to_have_count(0)


async def test_an_admin_makes_an_account_and_a_key_and_takes_them_back(program: Browser, served: House) -> None:
    async with opened_as("alex", program, served) as (page, _):
        await page.goto("/console/admin")
        await page.get_by_role("button", name="New account").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("Name").fill("nora")
        await form.get_by_label("Password").fill("short")
        await form.get_by_role("button", name="Make it").click()
        await expect(form.get_by_role("alert")).to_contain_text("password")
        await form.get_by_label("Password").fill("a longer pass phrase")
        await form.get_by_label("operator").check()
        await form.get_by_label("Agents").fill("shop")
        await form.get_by_role("button", name="Make it").click()
        await expect(page.get_by_role("row", name="nora operator shop")).to_be_visible()

        await page.get_by_role("button", name="Change nora").click()
        await form.get_by_label("Disabled").check()
        await form.get_by_role("button", name="Change it").click()
        await expect(page.get_by_role("row", name="nora operator shop").get_by_text("Disabled")).to_be_visible()

        await page.get_by_role("button", name="New key").click()
        await form.get_by_label("Name").fill("bot")
        await form.get_by_label("Agents").fill("shop")
        await form.get_by_role("button", name="Make it").click()
        secret = await page.locator("[data-secret]").inner_text()
        assert (await page.request.get("/me", headers={"Authorization": f"Bearer {secret}"})).status == 200
        await page.get_by_role("button", name="I have it").click()
        assert secret not in await page.content()

        await page.get_by_role("button", name="Revoke bot").click()
        await form.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_text("Revoked")).to_be_visible()
