"""The panel of budgets on the dashboard."""

import pytest
from playwright.async_api import Page, expect

from interlock.domain.errors import LogError
from tests.server.server_process import Call, Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPORT: Call = ("report", {"lines": 1})


async def test_panel_shows_used_and_limit(operator: Page, served: Running) -> None:
    await served.ended(await served.begin("Report.", *[REPORT] * 4))
    await operator.goto("/console/")
    panel = operator.get_by_role("region", name="Budgets", exact=True)

    await expect(panel).to_contain_text("reports-a-day: agent shop, requester")
    await expect(panel.locator(".ranks .figure")).to_have_text("4 of 5 calls a day")
    await expect(panel.locator("rect.degraded")).to_have_attribute("width", "80.0")
    await panel.get_by_text("Show the numbers").click()
    await expect(panel.get_by_role("row").last).to_contain_text("refused")


async def test_unreadable_budgets_do_not_break_the_page(
    operator: Page, served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise LogError("cannot use the budgets in runs.db-budgets: file is not a database")

    monkeypatch.setattr(served.service.budgets, "list_budgets", fail)
    await operator.goto("/console/")

    await expect(operator.get_by_role("region", name="Budgets", exact=True)).to_contain_text("file is not a database")
    await expect(operator.get_by_role("heading", name="Recent activity")).to_be_visible()
