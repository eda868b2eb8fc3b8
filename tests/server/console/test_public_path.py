"""The console below a path of another host: a proxy passes the path on, or strips it."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.server.console.browser import is_live, opened
from tests.server.console.test_passkeys import add_authenticator, add_passkey, sign_out
from tests.server.proxy import Proxy, running_proxy
from tests.server.server_process import PASSWORD, REFUND, REPORT, Running, console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")
PATH = "/tools/interlock"
_MAX_PAGES = 80
PAGES = {
    *(
        "/",
        "/account",
        "/admin",
        "/agents",
        "/audit",
        "/consents",
        "/inbox",
        "/notices",
        "/policy",
        "/runs",
        "/servers",
    ),
    *("/sinks", "/triggers", "/inbox/ID", "/runs/ID", "/runs/ID/calls/ID", "/runs/ID/artifacts"),
}
#: An id in an address: pages of the same kind are visited once.
_ID = re.compile(r"/(?:run_|act_|c\d|sha256|[0-9a-f]{16})[^/]*")


@pytest_asyncio.fixture(loop_scope="session", params=[True, False], ids=["strips", "passes"])
async def behind(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[tuple[Proxy, Running]]:
    async with (
        running_proxy(PATH, strips=request.param) as proxy,
        console_server(tmp_path / "state", public_url=proxy.url) as served,
    ):
        proxy.upstream = served.base
        yield proxy, served


async def test_every_page_stays_below_the_path(program: Browser, behind: tuple[Proxy, Running]) -> None:
    proxy, served = behind
    over = await served.begin(REPORT)
    await served.ended(over)
    await served.questions(await served.begin(REFUND))
    async with opened(program, proxy.url) as (page, _):
        await sign_in_below(page, "alex", proxy)
        visited = await crawl(page, f"{proxy.url}/console/")

    kinds = {_ID.sub("/ID", address.removeprefix(f"{proxy.url}/console")) for address in visited}
    assert PAGES - kinds == set()
    assert proxy.outside == []


async def sign_in_below(page: Page, name: str, proxy: Proxy) -> None:
    await page.goto(f"{proxy.url}/")
    await page.wait_for_url(f"{proxy.url}/console/login**")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(f"{proxy.url}/console/")


async def crawl(page: Page, start: str) -> set[str]:
    """Visit a page of every kind that links lead to. All links and forms lead below the start of the server."""
    base, queue, seen = start.removesuffix("/console/"), [start], set[str]()
    visited: set[str] = set()
    while queue and len(visited) < _MAX_PAGES:
        address = queue.pop(0)
        answer = await page.goto(address)
        assert answer is not None
        assert answer.status < 400, (address, answer.status)
        visited.add(address.partition("?")[0])
        found: list[str] = await page.eval_on_selector_all(
            "a[href]:not([download]), form[action]", "all => all.map((each) => each.href ?? each.action)"
        )
        assert [each for each in found if not each.startswith(f"{base}/")] == [], address
        links: list[str] = await page.eval_on_selector_all(
            "a[href]:not([download]):not([rel~=external])", "all => all.map((each) => each.href)"
        )
        for link in (each.partition("#")[0] for each in links):
            kind = _ID.sub("/ID", urlsplit(link).path) + re.sub(r"=[^&]*", "", urlsplit(link).query)
            if kind not in seen and "/console" in link:
                seen.add(kind)
                queue.append(link)
    return visited


async def test_operator_works_below_the_path(program: Browser, behind: tuple[Proxy, Running]) -> None:
    """Forms, requests of scripts, streams, redirects and the cookie."""
    proxy, served = behind
    run_id = await served.begin(REFUND)
    (asked,) = await served.questions(run_id)
    async with opened(program, proxy.url) as (page, _):
        await page.goto(f"{proxy.url}/console/inbox/{asked.action_id}")
        await page.wait_for_url(f"{proxy.url}/console/login?next=/console/inbox/{asked.action_id}")
        await page.get_by_label("Name").fill("olga")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await page.wait_for_url(f"{proxy.url}/console/inbox/{asked.action_id}")
        await is_live(page)
        (cookie,) = await page.context.cookies()
        await page.goto(f"{proxy.url}/console/runs/{run_id}")
        await is_live(page)
        client = await served.client("operator")
        await client.post(f"/v1/approvals/{asked.action_id}/approve", json={"payload_hash": asked.payload_hash})
        await expect(page.locator("body")).to_contain_text("All done.")
        await page.goto(f"{proxy.url}/console/")
        await page.locator("details.menu summary").click()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url(f"{proxy.url}/console/login**")

    assert (cookie.get("name"), cookie.get("path")) == ("interlock_session", PATH)
    assert proxy.outside == []


async def test_passkey_signs_in_below_the_path(program: Browser, behind: tuple[Proxy, Running]) -> None:
    proxy, _ = behind
    async with opened(program, proxy.url) as (page, _):
        await add_authenticator(page)
        await sign_in_below(page, "olga", proxy)
        await add_passkey(page, base=proxy.url)
        await expect(page.locator("tr", has_text="My phone")).to_contain_text("never")
        await sign_out(page)
        await page.goto(f"{proxy.url}/console/login?next=/console/account")
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await page.wait_for_url(f"{proxy.url}/console/account")

    assert proxy.outside == []
