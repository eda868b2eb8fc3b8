"""What a page does that nobody offered: requests with all that the page has, its sign-in and its token."""

import json
from typing import Any

from playwright.async_api import Page

_FETCH = """async ([method, path, body]) => (await fetch(path, {
    method, body, headers: {
        'Content-Type': 'application/json',
        'X-CSRF-Token': document.querySelector('meta[name="csrf-token"]').content,
    } })).status"""


async def forced(page: Page, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> int:
    """The status of the answer."""
    return await page.evaluate(_FETCH, [method, path, None if body is None else json.dumps(body)])


async def asked(page: Page, run_id: str) -> tuple[str, str]:
    """The question of a run, once it is shown to wait: its id and its hash."""
    await page.locator("#run-status", has_text="Waiting for approval").wait_for()
    (found,) = (await (await page.request.get(f"/v1/runs/{run_id}/approvals")).json())["approvals"]
    return found["action_id"], found["payload_hash"]
