"""Something happens at the very moment in which a page is drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.server.console.browser import is_live, opened_as
from tests.server.server_process import console_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_happens_while_a_page_is_drawn_appears_on_it_by_itself(
    program: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console_server(tmp_path / "state") as served, opened_as("olga", program, served) as (page, _):
        index, drawn = served.service.index, 0
        count = index.count_open_questions

        async def later(*seen: Any) -> Mapping[str, int]:
            """The page has read its runs by now, and counts what waits."""
            nonlocal drawn
            drawn += 1
            if drawn == 1:
                await served.ended(await served.begin("In between."))
            return await count(*seen)

        monkeypatch.setattr(index, "count_open_questions", later)
        await page.goto("/console/runs")
        await is_live(page)
        await expect(page.get_by_role("link", name="In between.")).to_be_visible()
        await expect(page.locator("tbody tr")).to_contain_text("Completed")
