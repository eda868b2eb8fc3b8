"""`interlock gateway` as processes: several on one log, and one whose policy is read again."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from interlock import Inbox, SqliteLog
from tests.mcp.gateway.processes import gateway_process
from tests.mcp.gateway.support import text_of
from tests.patience import HANG_SECONDS, eventually

PAY: dict[str, Any] = {"hangs": ""}


@pytest.mark.soak
async def test_gateways_on_one_log_run_a_call_once(tmp_path: Path) -> None:
    """Three clients of the same name make the same call at the same time, each at its own gateway. The same without
    processes is in `test_questions.py`.
    """
    waiting: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def pay(client: Client, held: "asyncio.Future[str]") -> str:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if not held.done():
                held.set_result(message or "")

        return text_of(await client.call_tool("bank_pay", PAY, progress_callback=on_progress))

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(gateway_process(tmp_path, hold="60s")) for _ in waiting]
        await asyncio.gather(*(client.list_tools() for client, _ in opened))
        calls = [asyncio.create_task(pay(client, held)) for (client, _), held in zip(opened, waiting, strict=True)]
        async with asyncio.timeout(HANG_SECONDS), SqliteLog(tmp_path / "runs.db") as log, Inbox(log) as inbox:
            shown = await asyncio.gather(*waiting)
            pending = await inbox.pending()
            for question in pending:
                await inbox.approve(question, by="ada")
            results = await asyncio.gather(*calls)

    assert set(shown) == {f"Waiting for approval {question.action_id}." for question in pending}
    assert len(pending) == 1
    assert results == ["paid"] * 3
    assert (tmp_path / "payments").read_text().split() == ["paid"]


async def test_a_policy_that_is_broken_on_reload_is_not_used(tmp_path: Path) -> None:
    """SIGHUP reads the policy again. With an invalid file, the one that was read before stays in force."""
    policy, said = tmp_path / "policy.yaml", tmp_path / "stderr"
    steps = (
        ("deny: [bank_pay]", "bank_pay", ""),
        ("deny: [bank_pay", "bank_pay", "invalid. The policy that was read before stays in force:"),
        ("allow: [bank_pay]", "paid", "The policy files were read again, and are in force."),
    )
    policy.write_text(f"version: 1\n{steps[0][0]}\n")
    async with gateway_process(tmp_path, "--policy", str(policy)) as (client, process):
        for text, shown, message in steps:
            await client.list_tools()
            if message:
                policy.write_text(f"version: 1\n{text}\n")
                process.send_signal(signal.SIGHUP)
                await eventually(lambda message=message: message in said.read_text())
            assert shown in text_of(await client.call_tool("bank_pay", PAY))

    assert f"{policy}:3: this is not YAML" in said.read_text()
    assert (tmp_path / "payments").read_text().split() == ["paid"]
