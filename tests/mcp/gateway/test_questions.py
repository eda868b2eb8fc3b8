"""Questions about the calls of MCP clients, at both protocol eras: who may answer, and that a call runs once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from interlock.mcp.gateway.asking import APPROVAL_META
from interlock.mcp.gateway.server import GatewayServer
from tests.mcp.gateway.support import (
    ASK_CLIENT,
    ERAS,
    Era,
    Payments,
    answering,
    connect,
    decide,
    observed_codes,
    open_server,
    text_of,
    until_asked,
)
from tests.patience import HANG_SECONDS

FIVE = {"amount": 5}
pytestmark = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def payments(tmp_path: Path) -> Payments:
    return Payments(tmp_path)


async def test_allowed_call_runs(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with open_server(tmp_path, payments) as (_, server), connect(server, era) as client:
        result = await client.call_tool("look", FIVE)

    assert (result.is_error, text_of(result)) == (False, "seen 5")


async def test_pending_call_runs_once_after_approval(tmp_path: Path, payments: Payments, era: Era) -> None:
    """Also when the gateway was restarted meanwhile."""
    async with open_server(tmp_path, payments) as (gate, server), connect(server, era) as client:
        pending = await client.call_tool("pay", FIVE)
        same = await client.call_tool("pay", FIVE)
        question = await decide(gate)
    async with open_server(tmp_path, payments) as (_, server), connect(server, era) as client:
        done = await client.call_tool("pay", FIVE)
        asked_again = await client.call_tool("pay", FIVE)

    meta = {"state": "pending", "action_id": question.action_id, "payload_hash": question.payload_hash, "url": ""}
    assert pending.is_error
    assert text_of(pending).startswith("PENDING: pay waits for approval")
    assert [(result.meta or {})[APPROVAL_META] for result in (pending, same)] == [meta, meta]
    assert (done.is_error, text_of(done), payments.paid) == (False, "paid 5", [5])
    assert text_of(asked_again).startswith("PENDING")


async def test_rejection_is_reported_once(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with open_server(tmp_path, payments) as (gate, server), connect(server, era) as client:
        await client.call_tool("pay", FIVE)
        await decide(gate, approved=False, reason="Too much.")
        told = await client.call_tool("pay", FIVE)
        again = await client.call_tool("pay", FIVE)

    assert "Too much." in text_of(told)
    assert text_of(again).startswith("PENDING")
    assert payments.paid == []


async def test_held_call_runs_when_approved_elsewhere(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with (
        open_server(tmp_path, payments, hold_seconds=HANG_SECONDS) as (gate, server),
        connect(server, era) as client,
    ):
        messages: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            messages.append(message)

        call = asyncio.create_task(client.call_tool("pay", FIVE, progress_callback=on_progress))
        question = await until_asked(gate)
        await decide(gate)
        result = await call

    assert (text_of(result), payments.paid) == ("paid 5", [5])
    assert messages == [f"Waiting for approval {question.action_id}."]


@pytest.mark.parametrize("elicit", ["claim", "trusted"])
async def test_user_of_the_client_approves(tmp_path: Path, payments: Payments, era: Era, elicit: str) -> None:
    policy = ASK_CLIENT if elicit == "claim" else None
    async with (
        open_server(tmp_path, payments, policy=policy, elicit=elicit) as (_, server),
        connect(server, era, answering("accept", "approve")) as client,
    ):
        result = await client.call_tool("pay", FIVE)

    assert (result.is_error, text_of(result), payments.paid) == (False, "paid 5", [5])


async def test_user_of_the_client_denies(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with (
        open_server(tmp_path, payments, policy=ASK_CLIENT) as (gate, server),
        connect(server, era, answering("accept", "deny")) as client,
    ):
        result = await client.call_tool("pay", FIVE)
        assert await gate.inbox.pending() == []

    assert "Denied in coder." in text_of(result)
    assert payments.paid == []


@pytest.mark.requirement("P29")
@pytest.mark.parametrize(
    ("action", "decision"), [("cancel", None), ("decline", None), ("accept", None), ("accept", "yes"), ("accept", "")]
)
async def test_only_a_choice_is_an_answer(
    tmp_path: Path, payments: Payments, era: Era, action: str, decision: str | None
) -> None:
    """What a client does without its user says nothing: the question stays open for a person."""
    async with (
        open_server(tmp_path, payments, policy=ASK_CLIENT) as (gate, server),
        connect(server, era, answering(action, decision)) as client,
    ):
        result = await client.call_tool("pay", FIVE)
        question = await decide(gate)
        done = await client.call_tool("pay", FIVE)

    assert question.action_id in text_of(result)
    assert (text_of(done), payments.paid) == ("paid 5", [5])


@pytest.mark.requirement("P29")
@pytest.mark.parametrize("elicit", ["off", "claim"])
async def test_client_that_accepts_by_itself_stays_pending(
    tmp_path: Path, payments: Payments, era: Era, elicit: str
) -> None:
    async with (
        open_server(tmp_path, payments, elicit=elicit) as (gate, server),
        connect(server, era, answering("accept", "approve")) as client,
    ):
        result = await client.call_tool("pay", FIVE)
        assert len(await gate.inbox.pending()) == 1

    assert text_of(result).startswith("PENDING")
    assert payments.paid == []


async def test_other_calls_go_on_while_one_is_held(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with (
        open_server(tmp_path, payments, hold_seconds=HANG_SECONDS) as (gate, server),
        connect(server, era) as client,
    ):
        held = asyncio.create_task(client.call_tool("pay", FIVE))
        await until_asked(gate)
        looks = await asyncio.gather(*(client.call_tool("look", {"amount": n}) for n in range(1, 17)))
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        after = await client.call_tool("look", FIVE)
        assert len(await gate.inbox.pending()) == 1

    assert [text_of(look) for look in (*looks, after)] == [f"seen {n}" for n in (*range(1, 17), 5)]


async def test_gateways_on_one_log_ask_once(tmp_path: Path, payments: Payments, era: Era) -> None:
    """Clients of the same name make the same call at the same time, at three gateways: one asks, the others attach."""
    asked = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def pay(server: GatewayServer, shown: "asyncio.Future[str | None]") -> str:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if not shown.done():
                shown.set_result(message)

        async with connect(server, era) as client:
            return text_of(await client.call_tool("pay", FIVE, progress_callback=on_progress))

    async with AsyncExitStack() as stack, asyncio.timeout(HANG_SECONDS):
        opened = [
            await stack.enter_async_context(open_server(tmp_path, payments, hold_seconds=HANG_SECONDS)) for _ in asked
        ]
        calls = [asyncio.create_task(pay(server, shown)) for (_, server), shown in zip(opened, asked, strict=True)]
        shown = set(await asyncio.gather(*asked))
        question = await decide(opened[0][0])
        results = await asyncio.gather(*calls)

    assert shown == {f"Waiting for approval {question.action_id}."}
    assert (results, payments.paid) == (["paid 5"] * 3, [5])


async def test_arguments_that_do_not_fit_ask_nobody(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with open_server(tmp_path, payments) as (gate, server), connect(server, era) as client:
        result = await client.call_tool("pay", {"amount": "lots"})
        assert await gate.inbox.pending() == []
        codes = await observed_codes(gate)

    assert result.is_error
    assert ("input.amount" in text_of(result), codes) == (True, ["schema_invalid"])


async def test_unknown_tool_is_an_error(tmp_path: Path, payments: Payments, era: Era) -> None:
    """It is recorded, and a client that is notified without asking for it lists the tools again."""
    notified = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            notified.set()

    async with (
        open_server(tmp_path, payments) as (gate, server),
        connect(server, era, message_handler=on_message) as client,
    ):
        await client.list_tools()
        with pytest.raises(MCPError) as raised:
            await client.call_tool("steal", {})
        if era != "2026-07-28":
            async with asyncio.timeout(HANG_SECONDS):
                await notified.wait()
        codes = await observed_codes(gate)

    assert (raised.value.code, codes) == (types.INVALID_PARAMS, ["unknown_tool"])


async def test_list_is_sorted_and_private(tmp_path: Path, payments: Payments, era: Era) -> None:
    async with open_server(tmp_path, payments) as (_, server), connect(server, era) as client:
        listed: Any = await client.list_tools()

    names = [tool.name for tool in listed.tools]
    assert names == sorted(names)
    assert {"look", "pay"} <= set(names)
    if era == "2026-07-28":
        assert listed.cache_scope == "private"
