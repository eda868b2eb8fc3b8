"""Consent in a real browser, at a real provider: given, used, renewed, taken back, refused, too late, not one's own."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.node.oidc_server import OidcServer
from tests.server.console.browser import Watch, is_live, opened, sign_in
from tests.server.story.agents import task
from tests.server.story.pages import forced
from tests.server.story.post_office import (
    CONSENT_SECONDS,
    Clock,
    PostOffice,
    may_leave,
    post_office,
    sign_in_there,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

READ = task("What is new?", ("read_mail", {"folder": "in"}))
SEND = task("Answer them.", ("send_mail", {"to": "them"}))
#: A token of the provider is good for an hour, and not used in its last minute.
_NEARLY_AN_HOUR = 3_570.0


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(
    tmp_path_factory: pytest.TempPathFactory, provider: OidcServer, clock: Clock
) -> AsyncGenerator[PostOffice]:
    async with post_office(tmp_path_factory.mktemp("office"), provider, clock) as served:
        yield served


@asynccontextmanager
async def consents_of(name: str, program: Browser, office: PostOffice) -> AsyncGenerator[tuple[Page, Watch]]:
    """Their page of consents."""
    async with opened(program, office.base) as (page, watch):
        await may_leave(page, watch, office.provider)
        await sign_in(page, name, "/console/consents")
        await is_live(page)
        yield page, watch


async def set_out(page: Page, tool: str, name: str) -> None:
    """To the provider, as far as its question."""
    await page.get_by_role("button", name=f"Give access to {tool}").click()
    await page.locator("#goto").click()
    await sign_in_there(page, name)


async def give(page: Page, tool: str, name: str, run_id: str) -> None:
    await set_out(page, tool, name)
    await page.get_by_role("button", name="Continue").click()
    await page.wait_for_url(f"**/console/runs/{run_id}")


@pytest.mark.requirement("R130", "R132", "R154", "R155", "R156")
async def test_a_run_goes_on_by_itself_once_the_person_it_acts_for_gave_access(
    program: Browser, office: PostOffice, clock: Clock
) -> None:
    async with consents_of("ada", program, office) as (page, _):
        first = await office.asks_for(READ, "ada")
        await expect(page.locator(".consents")).to_contain_text("mail.read")
        shown = await office.get(f"/v1/runs/{first}")
        events = (await office.get(f"/v1/runs/{first}/events"))["events"]
        assert (shown["status"], events[-1]["type"]) == ("PAUSED_CONSENT", "CONSENT_REQUIRED")
        await give(page, "read_mail", "ada", first)
        await expect(page.locator("#run-status")).to_contain_text("Completed")
        await expect(page.locator(".transcript")).to_contain_text("200: the mail of ada")

        # What was given is enough for the next run; when the token is old, another one comes without a question.
        await office.server.ended(await office.asks_for(READ, "ada"))
        asked_before = office.provider.requests()
        clock.put_forward(_NEARLY_AN_HOUR)
        third = await office.asks_for(READ, "ada")
        assert "200: the mail of ada" in (await office.server.ended(third)).message
        assert office.provider.requests()["refresh_token"] == asked_before.get("refresh_token", 0) + 1
        assert office.used[0] == office.used[1] != office.used[2]

        await page.goto("/console/consents")
        await page.get_by_role("button", name="Revoke from read_mail").click()
        await expect(page.get_by_text("Access revoked, here and at the provider.")).to_be_visible()
        assert [office.provider.mail(token)[0] for token in office.used[1:]] == [401, 401]
        await is_live(page)
        await office.asks_for(READ, "ada")
        await expect(page.get_by_role("button", name="Give access to read_mail")).to_be_visible()


@pytest.mark.requirement("R134")
async def test_a_no_there_or_here_or_none_in_time_fails_the_run(
    program: Browser, office: PostOffice, clock: Clock
) -> None:
    async with consents_of("bob", program, office) as (page, _):
        there = await office.asks_for(READ, "bob")
        await set_out(page, "read_mail", "bob")
        await page.get_by_role("link", name="Cancel").click()
        await page.wait_for_url(f"**/console/runs/{there}")
        await expect(page.locator("#run-status")).to_contain_text("Rejected")

        here = await office.asks_for(READ, "bob")
        await page.goto("/console/consents")
        await page.get_by_role("button", name="Reject read_mail").click()
        await expect(page.get_by_text("Consent rejected.")).to_be_visible()

        late = await office.asks_for(READ, "bob")
        await office.server.questions(late)
        clock.put_forward(CONSENT_SECONDS + 1)
        await office.asks_for(task("Nothing."), "bob")
        for run_id, code in ((there, "consent_refused"), (here, "consent_refused"), (late, "consent_expired")):
            await office.server.ended(run_id, "failed")
            assert code in await office.errors(run_id)


@pytest.mark.requirement("R155")
async def test_nobody_gives_access_for_somebody_else(program: Browser, office: PostOffice) -> None:
    run_id = await office.asks_for(READ, "cleo")
    (asked,) = await office.server.questions(run_id)
    async with (
        consents_of("cleo", program, office) as (hers, _),
        consents_of("dora", program, office) as (other, _),
    ):
        await expect(other.get_by_text("Nothing waits for your consent.")).to_be_visible()
        for what in ("start", "reject"):  # she may not even know of it
            assert await forced(other, f"/v1/consents/{asked.action_id}/{what}") == 404
        await hers.get_by_role("button", name="Give access to read_mail").click()
        # Her link in another browser leads to the provider, and to nothing here.
        await other.goto(await hers.locator("#goto").get_attribute("href") or "")
        await sign_in_there(other, "dora")
        await other.get_by_role("button", name="Continue").click()
        await other.wait_for_url("**/console/consents?problem=refused")
        await expect(other.get_by_role("alert")).to_contain_text("another browser set out for it")
        assert [row.action_id for row in await office.server.questions(run_id)] == [asked.action_id]
        await hers.goto("/console/consents")
        await give(hers, "read_mail", "cleo", run_id)
        await expect(hers.locator("#run-status")).to_contain_text("Completed")


@pytest.mark.requirement("R157")
async def test_a_call_that_needs_both_waits_for_access_and_for_a_yes(program: Browser, office: PostOffice) -> None:
    run_id = await office.asks_for(SEND, "emil")
    (consent,), used = await office.server.questions(run_id), len(office.used)
    async with consents_of("emil", program, office) as (page, _), opened(program, office.base) as (olga, _):
        await sign_in(olga, "olga", "/console/inbox")
        await is_live(olga)
        assert await forced(olga, f"/v1/consents/{consent.action_id}/start") == 403
        await give(page, "send_mail", "emil", run_id)
        await expect(page.locator("#run-status")).to_contain_text("Waiting for approval")
        assert len(office.used) == used
        await olga.get_by_role("link", name="send_mail").click()
        await olga.get_by_role("button", name="Approve").click()
        await olga.get_by_role("button", name="Yes, run it").click()
        await expect(page.locator("#run-status")).to_contain_text("Completed")
        await expect(page.locator(".transcript")).to_contain_text("200: the mail of emil")


async def test_a_provider_that_does_not_work_costs_nothing_but_another_try(
    program: Browser, office: PostOffice
) -> None:
    run_id = await office.asks_for(READ, "fay")
    async with consents_of("fay", program, office) as (page, _):
        await set_out(page, "read_mail", "fay")
        office.provider.answer_with(503)
        try:
            await page.get_by_role("button", name="Continue").click()
            await page.wait_for_url("**/console/consents?problem=unavailable")
        finally:
            office.provider.answer_with(0)
        await expect(page.get_by_role("alert")).to_contain_text("The run still waits")
        await page.get_by_role("button", name="Give access to read_mail").click()
        await page.locator("#goto").click()
        await page.get_by_role("button", name="Continue").click()  # there, the sign-in is remembered
        await page.wait_for_url(f"**/console/runs/{run_id}")
        await expect(page.locator("#run-status")).to_contain_text("Completed")


async def test_tokens_are_nowhere_but_with_the_tool(
    program: Browser, office: PostOffice, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    run_id = await office.asks_for(READ, "dora")
    seen: list[str] = []
    async with consents_of("dora", program, office) as (page, _):
        await give(page, "read_mail", "dora", run_id)
        await expect(page.locator("#run-status")).to_contain_text("Completed")
        for path in (f"/console/runs/{run_id}", f"/console/runs/{run_id}/calls/c0", "/console/consents"):
            await page.goto(path)
            seen.append(await page.content())
        for path in (f"/v1/runs/{run_id}/events?view=log&limit=500", f"/v1/runs/{run_id}/calls/c0", "/v1/consents"):
            seen.append(await (await page.request.get(path)).text())
    kept = await office.kept_tokens("dora", "read_mail")
    assert kept[0] == office.used[-1]
    files = contents(office.service.state_folder)
    said = [caplog.text, *capfd.readouterr(), *seen]
    for token in kept:
        assert len(token) >= 20
        assert not [text[:200] for text in said if token in text]
        assert not [content[:20] for content in files if token.encode() in content]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
