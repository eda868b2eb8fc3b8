"""A gateway process that is killed at any point, with a client that tries again: a payment happens at most once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from interlock import Inbox, SqliteLog
from interlock.mcp.gateway.stdio import message_streams
from tests.mcp.gateway.support import text_of
from tests.patience import HANG_SECONDS

_ROOT = Path(__file__).parents[3]
_START = "from interlock.cli.main import main; main()"


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncGenerator[tuple[Client, "subprocess.Popen[bytes]"]]:
    """Start the command, as a client does. It is killed in the end."""
    command = [sys.executable, "-m", "tests.mcp.gateway.paying_server", str(folder)]
    lines = ("[servers.bank]", f"command = {json.dumps(command)}", 'sandbox = "off"', 'pins = "off"')
    (folder / "mcp.toml").write_text("\n".join(lines))
    options = ["--servers", folder / "mcp.toml", "--log", folder / "runs.db", "--workspace", _ROOT, "--hold", "0"]
    process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [sys.executable, "-c", _START, "gateway", *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with Client(
            message_streams(process.stdout.fileno(), process.stdin.fileno()), mode="legacy", cache=None
        ) as client:
            yield client, process
    finally:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        process.stdin.close()
        process.stdout.close()


async def _approve(folder: Path) -> None:
    async with SqliteLog(folder / "runs.db") as log, Inbox(log) as inbox:
        (question,) = await inbox.pending()
        await inbox.approve(question, by="ada")


async def _until_hanging(folder: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await asyncio.to_thread((folder / "hangs").exists):
            await asyncio.to_thread(os.sched_yield)


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
    async with _gateway(tmp_path) as (client, _):
        assert text_of(await client.call_tool("bank_pay", arguments)).startswith("PENDING")
    await _approve(tmp_path)
    async with _gateway(tmp_path) as (client, process):
        call = asyncio.create_task(client.call_tool("bank_pay", arguments))
        if hangs:
            await _until_hanging(tmp_path)
            process.send_signal(signal.SIGKILL)
            with suppress(Exception):
                await call
        else:
            assert text_of(await call) == "paid"
    async with _gateway(tmp_path) as (client, _):
        first = text_of(await client.call_tool("bank_pay", arguments))
        second = text_of(await client.call_tool("bank_pay", arguments))

    assert _paid(tmp_path) == paid
    assert first.startswith("PENDING") or ("outcome" in first or "not known" in first), first
    assert second.startswith("PENDING"), second
