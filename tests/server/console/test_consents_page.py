"""The consents page in a real browser, against a real provider: access is given, refused and taken back there."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from interlock import ToolContext, tool
from interlock.domain.tool import Consent
from interlock.oauth.providers import OAuthProvider
from interlock.server.core.settings import ServerSettings
from tests.node.oidc_server import SECRETS, OidcServer
from tests.runs.support import agent_of, calls
from tests.server.console.browser import Watch, assert_accessible, assert_no_sideways, opened_as
from tests.server.server_process import PASSWORD, Running, running_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@tool(consent=Consent(provider="mail", scopes=("mail.read",)), risk="read")
def read_mail(folder: str, context: ToolContext) -> str:
    """Read the mail of the user."""
    return f"3 letters in {folder}" if context.access_token else "no access"


@asynccontextmanager
async def post_office(folder: Path, issuer: str) -> AsyncGenerator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mail = OAuthProvider(
        name="mail",
        client_id="interlock",
        client_secret_env="SECRET",
        issuer=issuer,
        always=("openid", "offline_access"),
        authorize_params={"prompt": "consent"},
    )
    agent = agent_of(calls(("c0", "read_mail", {"folder": "in"})), "Done.", tools=[read_mail], name="shop")
    settings, options = ServerSettings(providers=(mail,)), {"environ": {"SECRET": SECRETS["interlock"]}}
    async with running_server(
        folder, [agent], settings, port=port, console=True, on_behalf_of="sam", options=options
    ) as served:
        for name in ("sam", "zoe"):
            await served.service.accounts.create(name, PASSWORD, by="test")
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def office(tmp_path: Path, provider: OidcServer) -> AsyncGenerator[Running]:
    async with post_office(tmp_path, provider.issuer) as served:
        yield served


@pytest.mark.requirement("R132", "R155", "R156")
async def test_a_run_goes_on_after_the_person_gave_access_at_the_provider(
    program: Browser, office: Running, provider: OidcServer
) -> None:
    run_id = await office.begin("What is new?")
    await office.questions(run_id)
    async with opened_as("sam", program, office) as (page, watch):
        await _leave(page, watch, provider)
        await page.goto("/console/consents")
        assert "mail.read" in await page.locator(".consents").inner_text()
        pages = ["Dashboard", "Agents", "Runs", "Inbox", "Consents", "Notices"]
        assert (await page.get_by_role("navigation").inner_text()).splitlines() == pages
        await assert_accessible(page)
        await page.get_by_role("button", name="Give access to read_mail").click()
        assert "localhost" in await page.locator("main").inner_text()
        await page.locator("#goto").click()
        await _at_provider(page)
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url(f"**/console/runs/{run_id}")
        await page.locator("#run-status", has_text="Completed").wait_for()
        await page.goto(f"/console/runs/{run_id}/calls/c0")
        assert "3 letters in in" in await page.locator("#lens-model").inner_text()
        await page.goto("/console/consents")
        row = page.get_by_role("row").filter(has_text="read_mail")
        assert "mail.read" in await row.inner_text()
        await assert_accessible(page)
        await row.get_by_role("button", name="Revoke").click()
        await page.get_by_text("Access revoked, here and at the provider.").wait_for()
        assert await page.get_by_text("You have given no access.").is_visible()


@pytest.mark.requirement("R134")
async def test_a_no_at_the_provider_or_here_ends_the_question(
    program: Browser, office: Running, provider: OidcServer
) -> None:
    first = await office.begin("What is new?")
    await office.questions(first)
    async with opened_as("sam", program, office) as (page, watch):
        await _leave(page, watch, provider)
        await page.goto("/console/consents")
        await page.get_by_role("button", name="Give access to read_mail").click()
        await page.locator("#goto").click()
        await _at_provider(page)
        await page.get_by_role("link", name="Cancel").click()
        await page.wait_for_url(f"**/console/runs/{first}")
        await page.locator(".transcript .asked", has_text="No, by user:sam").wait_for()
        await page.locator("#run-status", has_text="Rejected").wait_for()
        second = await office.begin("And now?")
        await office.questions(second)
        await page.goto("/console/consents")
        await page.get_by_role("button", name="Reject read_mail").click()
        await page.get_by_text("Consent rejected.").wait_for()
    assert (await office.ended(second, "failed")).state == "failed"


async def test_nobody_else_sees_or_answers_what_one_person_is_asked_for(program: Browser, office: Running) -> None:
    run_id = await office.begin("What is new?")
    (asked,) = await office.questions(run_id)
    async with opened_as("zoe", program, office, phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.goto("/console/consents")
        assert await page.get_by_text("Nothing waits for your consent.").is_visible()
        await assert_no_sideways(page)
        token = await page.locator('meta[name="csrf-token"]').get_attribute("content")
        for what in ("start", "reject"):
            form: dict[str, Any] = {"csrf_token": token}
            path = f"/console/consents/{asked.action_id}/{what}"
            answer = await page.request.post(path, form=form, headers={"Origin": office.base})
            assert answer.status == 403
    assert (await office.questions(run_id))[0].state == "pending"


async def _leave(page: Page, watch: Watch, provider: OidcServer) -> None:
    """The provider's pages are not ours, and neither is the font that they would like to have."""
    font = "https://fonts.googleapis.com/"
    watch.expected += [f"off origin: {provider.issuer}/", f"off origin: {font}"]
    await page.context.route(f"{font}**", lambda route: route.fulfill(status=200, content_type="text/css", body=""))


async def _at_provider(page: Page) -> None:
    await page.locator("input[name=login]").fill("sam")
    await page.locator("input[name=password]").fill("any")
    await page.get_by_role("button", name="Sign-in").click()
