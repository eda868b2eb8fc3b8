"""The page of notices in a real browser: channels and dead letters, and push in this browser."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from interlock.server.core.notices.channel_settings import ChannelSettings
from tests.server.console.browser import assert_accessible, assert_no_sideways, opened
from tests.server.console.visits import Stage, visit
from tests.server.core.notices.channels import ENVIRON, deliveries, hook, mail, push, settings_for
from tests.server.core.notices.fake_push import FakeBrowser, FakePush, faking_push
from tests.server.core.receiver import Receiver, answer, receiving
from tests.server.server_process import NOTE, console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGE = "/console/notices"
SESSION = "interlock_session"
#: What a browser of a person would do: Chromium's push service cannot be reached from here, and without a screen it may
#: not show notifications.
SUBSCRIBE = """
(() => {
  const SUBSCRIPTION = %s;
  Object.defineProperty(Notification, "permission", { get: () => "granted" });
  Notification.requestPermission = async () => "granted";
  const made = (key) => ({
    endpoint: SUBSCRIPTION.endpoint,
    options: { applicationServerKey: key },
    toJSON: () => SUBSCRIPTION,
    unsubscribe: async () => localStorage.removeItem("subscribed"),
  });
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  PushManager.prototype.subscribe = async (options) => {
    localStorage.setItem("subscribed", "yes");
    return made(options.applicationServerKey.buffer);
  };
  PushManager.prototype.getSubscription = async () =>
    localStorage.getItem("subscribed") ? made(bytes(document.querySelector("[data-key]").dataset.key).buffer) : null;
})();
"""

#: Instead of showing notifications, which needs a screen.
RECORD = """(() => {
  self.shown = [];
  ServiceWorkerRegistration.prototype.showNotification = async (...words) => {
    self.shown.push(words);
    const look = () => (self.shown.length === 2 && self.done ? self.done(self.shown) : setTimeout(look, 5));
    if (self.shown.length === 2) look();
  };
})()"""


@asynccontextmanager
async def stage_with(program: Browser, folder: Path, *channels: ChannelSettings) -> AsyncGenerator[Stage]:
    settings = settings_for(*channels)
    plain = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, public_url=""))
    async with console_server(folder, settings=plain, options={"environ": ENVIRON}) as served:
        yield Stage(served, program)


@asynccontextmanager
async def dead_letter(program: Browser, folder: Path) -> AsyncGenerator[tuple[Stage, Receiver]]:
    """A server with a dead letter, whose channel said something hostile and long."""
    async with receiving() as receiver, stage_with(program, folder, hook(receiver.port)) as stage:
        notices = stage.house.service.notices
        await notices.pause()
        await stage.house.asked(await stage.house.begin(NOTE))
        await notices._planner.plan_page()  # pyright: ignore[reportPrivateUsage] - without its loop
        waiting = await deliveries(stage.house.service, "waiting")
        await notices.outbox.finish(waiting, "dead", problem="<b>no</b> \u202e" + "long" * 100)
        await notices.start()
        yield stage, receiver


async def test_admin_sends_a_dead_letter_again(program: Browser, tmp_path: Path) -> None:
    async with dead_letter(program, tmp_path) as (stage, receiver), visit(stage, "alex", PAGE) as (page, _):
        await expect(page.locator("section", has=page.locator("#dead-title"))).to_contain_text("<b>no</b>")
        await page.get_by_role("button", name="Send again").click()
        await expect(page.locator(".note.success")).to_contain_text("It is sent again.")
        await deliveries(stage.house.service, "sent")
        await page.get_by_role("button", name="Test hook").click()
        await expect(page.locator(".note.success")).to_contain_text("took the test notice")

    kinds = [msgspec.json.decode(request.body)["type"] for request in receiver.requests]
    assert kinds == ["question.asked", "notice.test"]


async def test_problem_of_a_test_is_shown(program: Browser, tmp_path: Path) -> None:
    async with receiving() as receiver, stage_with(program, tmp_path, hook(receiver.port)) as stage:
        receiver.answers = [answer(401, b"wrong <i>secret</i>")]
        async with visit(stage, "alex", PAGE) as (page, _):
            await page.get_by_role("button", name="Test hook").click()
            await expect(page.get_by_role("alert")).to_contain_text("hook did not take the test notice: The receiver")
            await expect(page.get_by_role("alert")).to_contain_text("<i>secret</i>")


@pytest.mark.parametrize("phone", [False, True])
async def test_page_is_accessible_in_light_and_dark(program: Browser, tmp_path: Path, phone: bool) -> None:
    async with dead_letter(program, tmp_path) as (stage, _), visit(stage, "alex", PAGE, phone=phone) as (page, _):
        await assert_no_sideways(page)
        await assert_accessible(page)


async def test_each_role_sees_its_part(program: Browser, tmp_path: Path) -> None:
    async with dead_letter(program, tmp_path) as (stage, _):
        (dead,) = await deliveries(stage.house.service, "dead")
        answers: dict[str, tuple[bool, bool]] = {}
        for name in ("sam", "olga", "audrey", "alex"):
            client = await stage.house.person(name)
            text = (await client.get(PAGE)).text
            answers[name] = ("Dead letters" in text, "Send again" in text)
        olga = await stage.house.person("olga")
        token = olga.headers["X-CSRF-Token"]
        refused = await olga.post(f"{PAGE}/{dead.number}/retry", data={"csrf_token": token})
        forged = await olga.post(f"{PAGE}/channels/hook/test", data={"csrf_token": "0"})

    assert answers == {
        "sam": (False, False),
        "olga": (True, False),
        "audrey": (True, False),
        "alex": (True, True),
    }
    assert (refused.status_code, forged.status_code) == (403, 403)


async def test_muted_channel_stays_muted(program: Browser, tmp_path: Path) -> None:
    channel = mail(1, people={"olga": "olga@example.com"})
    async with stage_with(program, tmp_path, channel) as stage, visit(stage, "olga", PAGE) as (page, _):
        box = page.get_by_label("mail: mail to olga@example.com")
        await expect(box).to_be_checked()
        await box.click()
        await expect(page.locator("#notices")).to_contain_text("Notices by mail are off.")
        await page.reload()
        await expect(box).not_to_be_checked()

        assert await stage.house.service.notices.people.list_muted("olga") == {"mail"}


@asynccontextmanager
async def subscribable(program: Browser, folder: Path) -> AsyncGenerator[tuple[Stage, Page, FakePush, FakeBrowser]]:
    """Olga's page, in a browser that may show notifications and has a push service."""
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(faking_push())
        browser = FakeBrowser(fake, "olga")
        stage = await stack.enter_async_context(stage_with(program, folder, push(fake.receiver.port)))
        page, _ = await stack.enter_async_context(visit(stage, "olga"))
        subscription = msgspec.json.encode({"endpoint": browser.endpoint, "keys": browser.keys}).decode()
        await page.context.add_init_script(SUBSCRIBE % subscription)
        await page.goto(PAGE)
        yield stage, page, fake, browser


async def test_person_switches_push_on_and_off(program: Browser, tmp_path: Path) -> None:
    async with subscribable(program, tmp_path) as (stage, page, fake, browser):
        await expect(page.locator("[data-push-state]")).to_have_text("Off.")
        await page.get_by_role("button", name="Switch push on").click()
        await expect(page.locator("[data-push-state]")).to_contain_text("On.")
        await expect(page.locator("[data-this]")).to_be_visible()
        await assert_accessible(page)
        await page.get_by_role("button", name="Send a test").click()
        await expect(page.locator("#notices")).to_contain_text("took the test")

        await stage.house.asked(await stage.house.begin(NOTE))
        await fake.receiver.wait_for(lambda: len(browser.messages) == 2)
        assert "/console/inbox/act_" in browser.messages[1]["url"]

        await page.get_by_role("button", name="Switch push off").click()
        await expect(page.locator("[data-push-state]")).to_have_text("Off.")
        assert await stage.house.service.notices.people.list_subscriptions() == []


async def test_link_of_a_notice_opens_the_question(program: Browser, tmp_path: Path) -> None:
    """Also from a page of another site, from where browsers do not send the cookie of a session."""
    async with receiving() as receiver, stage_with(program, tmp_path, hook(receiver.port)) as stage:
        await stage.house.asked(await stage.house.begin(NOTE))
        await receiver.wait_for(lambda: len(receiver.requests) == 1)
        url = msgspec.json.decode(receiver.requests[0].body)["data"]["question"]["url"]
        path = url.removeprefix("http://127.0.0.1:0")
        mail_program = f"data:text/html,<a href='{stage.house.base}{path.replace('%', '%25')}'>Open</a>"
        async with visit(stage, "olga") as (page, _):
            (cookie,) = await page.context.cookies(stage.house.base)
            token, base = cookie.get("value", ""), stage.house.base
            strict: Any = {"name": SESSION, "value": token, "url": base, "sameSite": "Strict"}
            await page.context.add_cookies([strict])
            await page.goto(mail_program)
            await page.get_by_role("link", name="Open").click()
            await page.wait_for_url(f"{stage.house.base}{path}")
            await expect(page.get_by_role("button", name="Approve").first).to_be_visible()
            await expect(page.locator("[data-other-payload]")).to_have_count(0)
            await page.goto(f"{path}0")
            await expect(page.locator("[data-other-payload]")).to_contain_text("made for another call")
        async with opened(program, stage.house.base) as (page, _):
            await page.goto(mail_program)
            await page.get_by_role("link", name="Open").click()
            await expect(page.get_by_label("Password")).to_be_visible()


async def test_refused_subscription_is_explained(program: Browser, tmp_path: Path) -> None:
    async with faking_push() as fake:
        browser = FakeBrowser(fake, "olga")
        async with stage_with(program, tmp_path, push(1)) as stage, visit(stage, "olga") as (page, _):
            subscription = msgspec.json.encode({"endpoint": browser.endpoint, "keys": browser.keys}).decode()
            await page.context.add_init_script(SUBSCRIBE % subscription)
            await page.goto(PAGE)
            await page.get_by_role("button", name="Switch push on").click()
            await expect(page.locator("[data-push-problem]")).to_be_visible()
            await expect(page.locator("[data-push-state]")).to_have_text("Off.")


async def test_worker_shows_messages_and_opens_only_this_console(program: Browser, tmp_path: Path) -> None:
    """The push event is made by the debugger; what the worker does with it is recorded."""
    message = {"title": "<b>Refund</b> 5 EUR", "body": "Risk: network", "tag": "t", "url": "x", "silent": False}
    async with subscribable(program, tmp_path) as (stage, page, _, _browser):
        await page.get_by_role("button", name="Switch push on").click()
        await expect(page.locator("[data-push-state]")).to_contain_text("On.")
        (worker,) = page.context.service_workers
        await worker.evaluate(RECORD)
        await _deliver(page, stage.house.base, msgspec.json.encode(message).decode())
        await _deliver(page, stage.house.base, "not a message")
        shown = await worker.evaluate("new Promise((resolve) => (self.done = resolve))")
        base = stage.house.base
        addresses = [f"{base}/console/inbox/act_1?payload=x", f"{base}/elsewhere", "https://evil.example/console/", "x"]
        pages = [await worker.evaluate("(url) => pageOf(url)", address) for address in addresses]

    icon = "/console/static/base.icon.svg"
    assert shown == [
        [
            "<b>Refund</b> 5 EUR",
            {"body": "Risk: network", "tag": "t", "silent": False, "icon": icon, "data": {"url": "x"}},
        ],
        [
            "A question waits for an answer",
            {"body": "", "tag": "unknown", "silent": False, "icon": icon, "data": {"url": ""}},
        ],
    ]
    assert pages == [addresses[0], *[f"{base}/console/inbox"] * 3]


async def _deliver(page: Page, base: str, data: str) -> None:
    session: Any = await page.context.new_cdp_session(page)
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def look(event: dict[str, Any]) -> None:
        for each in event["registrations"]:
            if not found.done():
                found.set_result(each["registrationId"])

    session.on("ServiceWorker.workerRegistrationUpdated", look)
    await session.send("ServiceWorker.enable")
    sent = {"origin": base, "registrationId": await found, "data": data}
    await session.send("ServiceWorker.deliverPushMessage", sent)
    await session.detach()
