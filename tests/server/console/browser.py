"""A real browser, held to what a console must never do: a test fails when a page logs an error, breaks the content
policy, opens a dialog, or asks another host for anything.

Chromium comes from the system (`python -m tests.server.console.install` gets it on Debian) or from INTERLOCK_CHROMIUM.
Where there is none, the tests that need it are skipped, and say why.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.node.axe import axe_script
from tests.patience import HANG_SECONDS
from tests.server.console.chromium import VARIABLE, chromium
from tests.server.server_process import PASSWORD, Running

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--in-process-gpu",
    # No spare process for a page that may come.
    "--renderer-process-limit=1",
)
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
Theme = Literal["light", "dark"]
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_CLOSE_SECONDS = 5.0
expect.set_options(timeout=1_000 * HANG_SECONDS)
#: What a browser says about an answer that is not 200; tests of refusals cause them on purpose.
_ANSWERED = "Failed to load resource: the server responded with a status of"


def needed_chromium() -> str:
    program = chromium()
    if program is None:
        pytest.skip(f"no Chromium here: install Debian's chromium-headless-shell, or set {VARIABLE}")
    return program


@asynccontextmanager
async def browser() -> AsyncGenerator[Browser]:
    """Closed with all that it started, also when the test fails."""
    flags = [*_FLAGS, *(("--no-sandbox",) if os.geteuid() == 0 else ())]
    program = needed_chromium()
    # What it writes beside its profile goes where it is taken away: a home may also be missing or read-only.
    with tempfile.TemporaryDirectory(prefix="interlock-browser-", ignore_cleanup_errors=True) as folder:
        environment: dict[str, str | float | bool] = {**os.environ, "HOME": folder, "TMPDIR": folder}
        async with async_playwright() as playwright:
            opened = await playwright.chromium.launch(
                executable_path=program, args=flags, headless=True, env=environment
            )
            try:
                yield opened
            finally:
                await opened.close()


class Watch:
    """What pages did that they must not do."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.faults: list[str] = []
        #: Words of faults that a test causes on purpose.
        self.expected: list[str] = []

    async def follow(self, context: BrowserContext) -> None:
        await context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"
        )
        context.on("page", self._page)
        context.on("request", self._request)

    def check(self) -> None:
        assert [fault for fault in self.faults if not any(words in fault for words in self.expected)] == []

    def _page(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_ANSWERED):
            self.faults.append(f"{message.type}: {message.text}")

    async def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).scheme != "data" and not request.url.startswith(f"{self.base}/"):
            self.faults.append(f"off origin: {request.url}")


@asynccontextmanager
async def opened(
    program: Browser, base: str, *, theme: Theme = "light", phone: bool = False, **options: Any
) -> AsyncGenerator[tuple[Page, Watch]]:
    """A page of a browser of its own: no cookies, no storage. Fails at its end for what `Watch` saw."""
    size: Any = PHONE if phone else DESKTOP
    context = await program.new_context(
        base_url=base, viewport=size, color_scheme=theme, reduced_motion="reduce", has_touch=phone, **options
    )
    context.set_default_timeout(1_000 * HANG_SECONDS)
    watch = Watch(base)
    await watch.follow(context)
    try:
        yield await context.new_page(), watch
    finally:
        await _close(context)
    watch.check()


async def _close(context: BrowserContext) -> None:
    """Chromium may never answer when a page is closed that is on its way to another one. So it goes nowhere first; and
    what does not close is closed with the browser."""
    for page in context.pages:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await page.goto("about:blank")
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await context.close()


async def sign_in(page: Page, name: str, then: str = "/console/") -> None:
    await page.goto(f"/console/login?next={then}")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(f"**{then}")


@asynccontextmanager
async def opened_as(name: str, program: Browser, house: Running, **options: Any) -> AsyncGenerator[tuple[Page, Watch]]:
    """A page on which somebody is signed in already."""
    new = await house.service.sessions.start(name)
    assert new is not None
    async with opened(program, house.base, **options) as (page, watch):
        await page.context.add_cookies([{"name": "interlock_session", "value": new.token, "url": house.base}])
        yield page, watch


async def is_live(page: Page) -> None:
    await page.locator('#live[data-state="on"]').wait_for()
    if await page.locator("[data-inbox]").count():
        await page.locator("body[data-settled]").wait_for()


async def assert_accessible(page: Page) -> None:
    """axe finds nothing against WCAG A and AA; in the dark, where only colours are others, nothing about these."""
    # Evaluated by the debugger, which the page's policy does not hold back.
    await page.evaluate(f"{axe_script().read_text(encoding='utf-8')}\n;0")
    await page.emulate_media(color_scheme="light")
    faults = await _faults(page, _RULES)
    await page.emulate_media(color_scheme="dark")
    faults += await _faults(page, {"type": "rule", "values": ["color-contrast"]})
    await page.emulate_media(color_scheme="light")
    assert faults == []


async def _faults(page: Page, rules: object) -> list[str]:
    result = await page.evaluate(
        "rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'], elementRef: false })", rules
    )
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:300]} {node['failureSummary'][:300]}"
        for fault in result["violations"]
        for node in fault["nodes"][:3]
    ]


async def assert_no_sideways(page: Page) -> None:
    """Nothing is wider than the screen."""
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
