"""What is shown equals what runs: hostile texts in a real browser are text, and nothing but text."""

import re
from html import unescape
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery
from tests.corpora import injection
from tests.pipeline.approval.display_reader import parse_outline
from tests.server.console.browser import is_live, opened_as
from tests.server.console.scenes import make_scene
from tests.server.server_process import Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

OLGA = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)))
#: The elements that arguments are shown with.
_OWN_ELEMENTS = {"OL", "LI", "SPAN", "DIV", "BUTTON"}
_MAX_PAGES = 80
_LINK = re.compile(r'<a [^>]*href="([^"]*)"')


def _is_text(payload: str) -> bool:
    """Lone surrogates are refused long before anybody is asked."""
    return not any("\ud800" <= character <= "\udfff" for character in payload)


#: Those on the log hold secrets, which are taken out before anybody is asked.
_ATTACKS = [attack for attack in injection.load() if attack.target != "log" and _is_text(attack.payload)]
_CONSOLE = [attack.payload for attack in _ATTACKS if attack.target == "console"]


async def _read(page: Page) -> dict[str, Any]:
    """The arguments as somebody sees them on the page."""
    lines = await page.locator("[data-arguments] .outline li").evaluate_all(
        "items => items.map((item) => [Number(item.dataset.depth), item.textContent])"
    )
    return parse_outline((depth, text) for depth, text in lines)


async def _facts(house: Running) -> tuple[int, int]:
    """How much the log and the journal have."""
    return len(await house.service.log.feed()), (await house.service.audit_log.read_head())[0]


async def test_hostile_arguments_read_back_from_the_page_exactly(operator: Page, served: Running) -> None:
    hostile = {f"{at} {payload[:60]}": payload for at, payload in enumerate(attack.payload for attack in _ATTACKS)}
    more = [payload for payload in injection.MORE if _is_text(payload)]
    arguments = {"anything": {"corpus": hostile, "more": more, "spaces": f"a{' ' * 400}b"}}
    run_id = await served.begin("Keep it.", ("keep", arguments))
    (question,) = await served.questions(run_id)

    await operator.goto(f"/console/inbox/{question.action_id}")
    await is_live(operator)
    await operator.keyboard.press("v")

    assert await _read(operator) == arguments
    elements = await operator.locator("[data-arguments] *").evaluate_all("all => all.map((one) => one.tagName)")
    assert set(elements) <= _OWN_ELEMENTS
    assert await operator.locator("[data-arguments] li").evaluate_all(
        "all => all.every((line) => line.checkVisibility() && line.scrollWidth <= line.clientWidth)"
    )


@pytest.mark.requirement("R148")
async def test_hostile_words_stay_words_on_every_page_and_decide_nothing(operator: Page, served: Running) -> None:
    for payload in _CONSOLE:
        run_id = await served.begin(payload, ("refund", {"order": payload, "amount": 1, "note": payload}))
        await served.questions(run_id)
    refused = await served.begin("Reject this.", ("refund", {"order": "A", "amount": 1}))
    (question,) = await served.questions(refused)
    await served.service.approval_service.reject(OLGA, question.action_id, "\n".join(_CONSOLE))
    await served.ended(refused, "failed")
    waiting = await served.service.index.list_actions(ActionQuery(statuses=frozenset(("PENDING",))))

    pages = ["/console/", "/console/runs", "/console/inbox?all=1", f"/console/inbox/{question.action_id}"]
    for path in (*pages, *(f"/console/inbox/{row.action_id}" for row in waiting.rows)):
        await operator.goto(path)
        links = await operator.locator("a[href]").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
        assert all(link.startswith(("/console/", "#")) for link in links)
        foreign = "main script, main iframe, main img, main meta, main style, main math, main form[action*=approvals]"
        await expect(operator.locator(foreign)).to_have_count(0)

    assert (await served.service.index.list_actions(ActionQuery(statuses=frozenset(("PENDING",))))).rows == waiting.rows
    assert len(waiting.rows) == len(_CONSOLE)


async def test_looking_at_pages_changes_nothing(program: Browser, served: Running) -> None:
    await make_scene(served)
    async with opened_as("olga", program, served) as (page, _):
        before = await _facts(served)
        left, seen = ["/console/"], set[str]()
        while left and len(seen) < _MAX_PAGES:
            path = left.pop(0)
            seen.add(path)
            response = await page.request.get(path)
            assert response.status < 500
            if "text/html" in response.headers["content-type"]:
                links = [unescape(link).partition("#")[0] for link in _LINK.findall(await response.text())]
                left += [link for link in dict.fromkeys(links) if link and link not in seen and link not in left]

        assert len(seen) > 20
        assert await _facts(served) == before


async def test_a_call_with_secrets_says_that_they_are_not_shown(operator: Page, served: Running) -> None:
    run_id = await served.begin("Keep it.", ("keep", {"anything": {"key": "AKIAIOSFODNN7EXAMPLE"}}))
    (question,) = await served.questions(run_id)

    await operator.goto(f"/console/inbox/{question.action_id}")

    await expect(operator.locator("[data-secrets]")).to_contain_text("secrets")
    await expect(operator.get_by_text("AKIAIOSFODNN7EXAMPLE")).to_have_count(0)
    await expect(operator.get_by_role("button", name="Edit")).to_have_count(0)


async def test_texts_are_marked_where_they_hold_what_nobody_sees(operator: Page, served: Running) -> None:
    run_id = await served.begin(
        "\u202ecod.exe", ("keep", {"anything": {"to": "p\u0430ypal.com", "hidden": "a\u200bb"}})
    )
    (question,) = await served.questions(run_id)

    await operator.goto(f"/console/inbox/{question.action_id}")

    await expect(operator.locator("[data-warnings]")).to_contain_text("mixes alphabets inside a word")
    await expect(operator.locator("[data-warnings]")).to_contain_text("U+200B")
    await expect(operator.locator("[data-arguments] .unseen")).to_have_text("\\u{200b}")
    await expect(operator.locator("[data-run-link]")).to_have_text("\\u{202e}cod.exe")
    # To be edited, it is an escape, too.
    assert "a\\u200bb" in await operator.get_by_label("Arguments, as JSON").input_value()
