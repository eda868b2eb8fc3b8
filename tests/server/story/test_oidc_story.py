"""Signing in to the console with a real identity provider, in a real browser."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.node.oidc_server import OidcServer
from tests.server.console.browser import Watch, is_live, opened, sign_in
from tests.server.story.post_office import Clock, PostOffice, may_leave, post_office, sign_in_there

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(tmp_path_factory: pytest.TempPathFactory, provider: OidcServer) -> AsyncGenerator[PostOffice]:
    async with post_office(tmp_path_factory.mktemp("office"), provider, Clock()) as served:
        yield served


@asynccontextmanager
async def at_the_provider(
    name: str, program: Browser, office: PostOffice, wanted: str = "/console/"
) -> AsyncGenerator[tuple[Page, Watch]]:
    """Somebody who set out from the sign-in page, and has said there who they are."""
    async with opened(program, office.base) as (page, watch):
        await may_leave(page, watch, office.provider)
        await page.goto(wanted)
        await page.get_by_role("link", name="Sign in with house").click()
        await sign_in_there(page, name)
        yield page, watch


async def test_whom_the_provider_vouches_for_has_the_roles_that_are_mapped(
    program: Browser, office: PostOffice
) -> None:
    async with at_the_provider("operator-anna", program, office) as (page, _):
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url(f"{office.base}/console/")
        await is_live(page)
        me = await (await page.request.get("/v1/me")).json()
        assert (me["name"], me["roles"]) == ("user:operator-anna", ["operator"])
        await page.get_by_role("link", name="Policy").click()
        await expect(page.get_by_role("heading", name="Policy", exact=True)).to_be_visible()
        await page.locator("details.menu summary").click()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/console/login")
        assert (await page.request.get("/v1/me")).status == 401
    async with at_the_provider("nora", program, office) as (page, _):
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url(f"{office.base}/console/")
        assert (await (await page.request.get("/v1/me")).json())["roles"] == []


@pytest.mark.parametrize(("name", "press"), [("ada", "Continue"), ("paul", "Cancel")])
async def test_who_has_somebody_elses_name_or_does_not_agree_is_told_so_and_not_signed_in(
    program: Browser, office: PostOffice, name: str, press: str
) -> None:
    async with at_the_provider(name, program, office) as (page, _):
        await page.get_by_text(press).click()
        await page.wait_for_url(f"{office.base}/**")
        await expect(page.get_by_role("alert")).to_contain_text("You are not signed in")
        assert (await page.request.get("/v1/me")).status == 401
        await sign_in(page, "bob")


async def test_the_page_that_was_wanted_is_there_after_the_way_to_the_provider(
    program: Browser, office: PostOffice
) -> None:
    async with at_the_provider("walter", program, office, "/console/runs?status=FAILED") as (page, _):
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url("**/console/runs?status=FAILED")
        await expect(page.get_by_label("Status")).to_have_value("FAILED")
