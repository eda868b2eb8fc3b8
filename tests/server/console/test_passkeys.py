"""Passkeys in a real browser, with an authenticator that Chromium simulates."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.server.core.identity.passkeys import Passkeys
from tests.server.console.browser import assert_accessible, opened, sign_in
from tests.server.server_process import PASSWORD, Running

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def browser_with_passkeys(program: Browser, served: Running) -> AsyncGenerator[tuple[Page, Any, str]]:
    """A browser at a name: passkeys belong to one, and not to an address."""
    base = served.base.replace("127.0.0.1", "localhost")
    served.service.passkeys = Passkeys(served.service.database, base, served.service.now)
    async with opened(program, base) as (page, _):
        yield page, *await add_authenticator(page)


async def add_authenticator(page: Page) -> tuple[Any, str]:
    """Simulate an authenticator. Return the session that controls it, and its id."""
    session: Any = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    options: dict[str, Any] = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True}
    options |= {"hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True}
    made = await session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session, made["authenticatorId"]


async def add_passkey(page: Page, name: str = "My phone", password: str = PASSWORD, base: str = "") -> None:
    await page.goto(f"{base}/console/account")
    await page.get_by_role("button", name="Add a passkey").click()
    dialog = page.locator("dialog[open]")
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_label("Your password").fill(password)
    await dialog.get_by_role("button", name="Continue").click()


async def sign_out(page: Page) -> None:
    await page.locator("details.menu summary").click()
    await page.get_by_role("button", name="Sign out", exact=True).click()
    await page.wait_for_url("**/console/login")


async def refused_actions(served: Running) -> list[tuple[str, str]]:
    return [(each.by, each.action) for each in await served.service.audit_log.read() if each.outcome == "refused"]


async def test_person_adds_a_passkey_and_signs_in(program: Browser, served: Running) -> None:
    async with browser_with_passkeys(program, served) as (page, _, _):
        await sign_in(page, "olga")
        await add_passkey(page, password="wrong password!")
        await expect(page.locator("dialog[open] [data-problem]")).to_have_text("password: is not your password")
        await assert_accessible(page)
        await add_passkey(page)
        row = page.locator("tr", has_text="My phone")
        await expect(row).to_contain_text("My phone")
        await expect(row).to_contain_text("never")

        await sign_out(page)
        await page.goto("/console/login?next=/console/account")
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await page.wait_for_url("**/console/account")
        await expect(row).not_to_contain_text("never")
        async with page.expect_navigation():
            await page.get_by_role("button", name="Remove My phone").click()
        await sign_out(page)
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.locator("[data-problem]")).to_have_text(
            "This passkey was not accepted. Sign in with your password."
        )
    actions = [each.action for each in await served.service.audit_log.read() if each.action.startswith("passkey.")]
    assert actions == ["passkey.added", "passkey.removed"]
    assert await refused_actions(served) == [("", "session.started")]


async def test_disabled_account_cannot_sign_in(program: Browser, served: Running) -> None:
    async with browser_with_passkeys(program, served) as (page, _, _):
        await sign_in(page, "olga")
        await add_passkey(page)
        await page.get_by_role("button", name="Remove My phone").wait_for()
        await sign_out(page)
        await served.service.accounts.disable("olga", by="user:alex")
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.locator("[data-problem]")).to_contain_text("This passkey was not accepted.")


async def test_person_who_is_not_verified_is_refused(program: Browser, served: Running) -> None:
    async with browser_with_passkeys(program, served) as (page, session, authenticator):
        await sign_in(page, "olga")
        await add_passkey(page)
        await page.get_by_role("button", name="Remove My phone").wait_for()
        await sign_out(page)
        await session.send("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": False})
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.locator("[data-problem]")).not_to_be_empty()
    assert await served.service.sessions.list_by_account("olga") == ()


async def test_answer_is_taken_once_and_from_its_browser(program: Browser, served: Running) -> None:
    async with browser_with_passkeys(program, served) as (page, _, _):
        await sign_in(page, "olga")
        await add_passkey(page)
        await page.get_by_role("button", name="Remove My phone").wait_for()
        await sign_out(page)
        async with page.expect_request("**/v1/session/passkey") as sent:
            await page.get_by_role("button", name="Sign in with a passkey").click()
        await page.wait_for_url("**/console/")
        answer = (await sent.value).post_data_json
        client = await served.client("")
        await client.post("/v1/session/passkey/options", json={})
        replayed = await client.post("/v1/session/passkey", json=answer)
    assert replayed.status_code == 401
    assert replayed.json()["error"]["code"] == "wrong_passkey"
    assert ("user:olga", "session.started") in await refused_actions(served)
