"""A process that proposes one refund. It may be killed right after the bank paid. It prints the outcome."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from interlock import SqliteLog, ToolContext, ToolDefinition, ToolRuntime, tool
from tests.support import call

from .scene import ALLOW, NOBODY


def refund_tool(folder: Path, *, dies: bool, idempotent: bool = False) -> ToolDefinition:
    def refund(order: int, ctx: ToolContext) -> str:
        with (folder / "paid").open("a") as bank:
            bank.write(f"{order} {ctx.idempotency_key}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    return tool(refund, risk="network", effect="refund:{order}", idempotent=idempotent)


async def pay(folder: Path, run_id: str, call_id: str, mode: str) -> str:
    async with SqliteLog(folder / "runs.db") as log:
        refund = refund_tool(folder, dies="die" in mode, idempotent="idempotent" in mode)
        async with ToolRuntime(tools=[refund], policy=ALLOW, interaction=NOBODY, log=log, run_id=run_id) as runtime:
            if "together" in mode:
                print("ready", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
            if "resume" in mode:
                return (await runtime.resume()).observations[0].code
            return (await runtime.execute([call(call_id, "refund", order=4711)])).observations[0].code


if __name__ == "__main__":
    print(asyncio.run(pay(Path(sys.argv[1]), *sys.argv[2:5])))
