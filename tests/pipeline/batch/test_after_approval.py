"""What was asked before a run stopped or ended, and what that means afterwards."""

import asyncio

from interlock import (
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    PermissionMode,
    ToolRuntime,
    tool,
)
from tests.support import call


async def test_a_mode_that_is_entered_while_the_run_is_opened_holds_for_its_first_batch() -> None:
    async def write() -> str:
        return "written"

    runtime = ToolRuntime(tools=[write])
    opening = asyncio.ensure_future(runtime.state())
    await asyncio.wait({opening}, timeout=0)
    runtime.switch_mode(mode=PermissionMode.READ_ONLY)
    await opening

    result = await runtime.execute([call("c1", "write")])

    assert result.observations[0].code == "tool_not_visible"


async def test_a_run_that_is_over_asks_nobody_any_more() -> None:
    async def write() -> str:
        return "written"

    runtime = ToolRuntime(tools=[tool(write, risk="write")], interaction=HeadlessInteractionProvider("wait"))
    await runtime.execute([call("c1", "write")])
    assert len(await runtime.questions()) == 1

    await runtime.cancel()

    assert await runtime.questions() == []


async def test_arguments_that_have_no_canonical_form_cannot_be_approved_and_do_not_disturb_their_siblings() -> None:
    ran: list[int] = []

    async def save(number: int = 2**60) -> str:
        ran.append(number)
        return "saved"

    yes = CallbackInteractionProvider(lambda _: True)
    runtime = ToolRuntime(tools=[tool(save, risk="write")], interaction=yes)

    result = await runtime.execute([call("c1", "save"), call("c2", "save", number=1)])

    assert [observation.code for observation in result.observations] == ["policy_denied", "ok"]
    assert ran == [1]
