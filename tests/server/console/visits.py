"""A server and a browser, and ways into pages that cost no sign-in form."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from playwright.async_api import Browser, Page

from interlock.domain.event import Event, Fact, LogEntry, encode_event, genesis_hash, next_hash
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.approval_service import Approval
from tests.server.console.browser import Watch, opened_as
from tests.server.server_process import Running

OPERATOR = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)))
ADMIN = Principal(name="user:alex", kind="person", roles=frozenset((Role.ADMIN,)))


class Stage(NamedTuple):
    house: Running
    browser: Browser


@asynccontextmanager
async def visit(on: Stage, name: str = "alex", path: str = "", **options: Any) -> AsyncGenerator[tuple[Page, Watch]]:
    """A page of somebody who is signed in."""
    async with opened_as(name, on.browser, on.house, **options) as (page, watch):
        if path:
            await page.goto(path)
        yield page, watch


async def edited_refund(served: Running) -> str:
    """A run that is over: a person was asked, and gave less than the model wanted; a second one agreed."""
    run_id = await served.begin("Give it back.", ("refund", {"order": "B-7", "amount": 10.0}))
    (asked,) = await served.questions(run_id)
    less = Approval(
        payload_hash=asked.payload_hash, reason="Half is enough.", arguments={"order": "B-7", "amount": 5.0, "note": ""}
    )
    await served.service.approval_service.approve(OPERATOR, asked.action_id, less)
    (edited,) = await served.questions(run_id, after=asked.action_id)
    await served.service.approval_service.approve(ADMIN, edited.action_id, Approval(payload_hash=edited.payload_hash))
    await served.ended(run_id)
    return run_id


def written(run_id: str, facts: list[Fact], at: int = 1_700_000_000_000_000_000) -> list[LogEntry]:
    """Events as a log has them."""
    entries: list[LogEntry] = []
    head = genesis_hash(run_id)
    for seq, fact in enumerate(facts):
        body = encode_event(Event(seq, run_id, at + seq, run_id, None, fact))
        head = next_hash(head, body)
        entries.append(LogEntry(run_id, seq, body, head))
    return entries
