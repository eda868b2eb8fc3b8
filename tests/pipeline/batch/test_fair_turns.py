"""Calls that never wait leave turns of the event loop to others."""

import asyncio

from interlock import ToolRuntime, tool
from tests.support import call


@tool(risk="read")
async def nothing() -> str:
    """Return at once."""
    return "done"


async def test_other_tasks_run_beside_calls_that_never_wait():
    async with ToolRuntime(tools=[nothing]) as runtime:
        others = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(others.cancel)
        for number in range(1_000):
            await runtime.execute([call(f"c{number}", "nothing")])
            if others.done():
                return
    raise AssertionError("no other task had a turn")
