"""The policy page in a real browser: rules, why, and another policy tried on what was recorded."""

import pytest

from tests.server.console.browser import assert_accessible, assert_no_sideways
from tests.server.console.visits import Stage, edited_refund, visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

STRICT = "version: 1\nrules:\n  - id: never\n    decision: deny\n    tools: [refund]\n"


async def test_rules_are_listed_with_verdict_layer_and_what_they_are_about(on: Stage) -> None:
    async with visit(on, "olga", "/console/policy") as (page, _):
        row = page.get_by_role("row").filter(has_text="money-needs-a-person")
        words = " ".join((await row.inner_text()).split())
        egress = await page.get_by_role("region", name="Egress rules").get_by_role("row").last.inner_text()
    assert words == "Ask money-needs-a-person Money leaves the house. tools refund project rule never"
    assert " ".join(egress.split()) == "Allow packages hosts pypi.org, ports 80 | 443 project rule"


async def test_a_call_is_explained_with_the_rule_that_decides(on: Stage) -> None:
    async with visit(on, "olga", "/console/policy") as (page, _):
        await page.get_by_label("Tool").fill("refund")
        await page.get_by_label("Arguments").fill('{"order": "<b>A</b>", "amount": 3}')
        await page.get_by_role("button", name="Explain").click()
        words = await page.locator("#explained").inner_text()
        assert "money-needs-a-person" in words
        assert "before every call" in words
        await page.get_by_label("Arguments").fill('{"order": 1}')
        await page.get_by_role("button", name="Explain").click()
        assert "amount: Field required" in await page.get_by_role("alert").inner_text()
        assert await page.get_by_label("Arguments").input_value() == '{"order": 1}'
        await assert_accessible(page)


async def test_a_pasted_policy_lists_what_it_would_have_decided_otherwise(on: Stage) -> None:
    run_id = await edited_refund(on.house)
    async with visit(on, "audrey", "/console/policy") as (page, _):
        await page.get_by_label("Policy", exact=True).fill(STRICT)
        await page.get_by_role("button", name="Try it").click()
        words = " ".join((await page.locator("#tried").inner_text()).split())
        assert words.startswith("Result 1 decision would change, 0 would not. 1 calls of 1 run were looked at.")
        await assert_accessible(page)
        await page.get_by_role("link", name="refund").click()
        assert page.url.endswith(f"/console/runs/{run_id}/calls/c0")
        await page.goto("/console/policy")
        await page.get_by_label("Policy", exact=True).fill("version: 1\nrules:\n  - id: a\n    decision: <perhaps>\n")
        await page.get_by_role("button", name="Try it").click()
        assert "policy:4:" in await page.get_by_role("alert").inner_text()


async def test_it_is_not_for_everybody_and_a_form_without_its_token_does_nothing(on: Stage) -> None:
    async with visit(on, "sam") as (page, _):
        answer = await page.request.get("/console/policy?agent=shop")
        assert answer.status == 403
    async with visit(on, "olga") as (page, _):
        form: dict[str, str | float | bool] = {
            "agent": "shop",
            "tool": "refund",
            "arguments": "{}",
            "csrf_token": "wrong",
        }
        answer = await page.request.post("/console/policy/explain", form=form, headers={"Origin": on.house.base})
        assert answer.status == 403


async def test_it_fits_a_narrow_phone(on: Stage) -> None:
    async with visit(on, "olga", phone=True) as (page, _):
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.goto("/console/policy")
        await assert_no_sideways(page)
