"""A gateway process that is killed at any point, with a client that tries again: a payment happens at most once."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlock import Inbox, SqliteLog
from tests.mcp.gateway.processes import gateway_process
from tests.mcp.gateway.support import text_of
from tests.patience import eventually


async def _approve(folder: Path) -> None:
    async with SqliteLog(folder / "runs.db") as log, Inbox(log) as inbox:
        (question,) = await inbox.pending()
        await inbox.approve(question, by="ada")


async def _until_hanging(folder: Path) -> None:
    await eventually((folder / "hangs").exists)


def _paid(folder: Path) -> int:
    file = folder / "payments"
    return len(file.read_text().split()) if file.exists() else 0


@pytest.mark.parametrize(
    ("hangs", "paid"),
    [
        pytest.param("", 1, marks=pytest.mark.soak),
        pytest.param("before", 0, marks=pytest.mark.soak),
        ("after", 1),
    ],
)
async def test_killed_gateway_pays_at_most_once(tmp_path: Path, hangs: str, paid: int) -> None:
    arguments: dict[str, Any] = {"hangs": hangs}
    async with gateway_process(tmp_path) as (client, _):
        assert text_of(await client.call_tool("bank_pay", arguments)).startswith("PENDING")
    await _approve(tmp_path)
    async with gateway_process(tmp_path) as (client, process):
        call = asyncio.create_task(client.call_tool("bank_pay", arguments))
        if hangs:
            await _until_hanging(tmp_path)
            process.send_signal(signal.SIGKILL)
            with suppress(Exception):
                await call
        else:
            assert text_of(await call) == "paid"
    async with gateway_process(tmp_path) as (client, _):
        first = text_of(await client.call_tool("bank_pay", arguments))
        second = text_of(await client.call_tool("bank_pay", arguments))

    assert _paid(tmp_path) == paid
    assert first.startswith("PENDING") or ("outcome" in first or "not known" in first), first
    assert second.startswith("PENDING"), second
