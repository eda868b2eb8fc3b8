"""What was asked before a run stopped or ended, and what that means afterwards."""

import asyncio

import pytest

from interlock import (
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    LogError,
    MemoryLog,
    PermissionMode,
    RulePolicy,
    ToolRuntime,
    tool,
)
from tests.crash.faults import FaultyLog
from tests.support import call


@pytest.mark.requirement("D15")
async def test_an_approved_idempotent_call_that_was_interrupted_runs_again_when_policy_allows_it_by_then() -> None:
    ran: list[str] = []

    async def save() -> str:
        ran.append("save")
        return "saved"

    memory, tools = MemoryLog(), [tool(save, risk="write", idempotent=True)]
    yes = CallbackInteractionProvider(lambda _: True)
    # The first append holds the question, the second one the start; the end is lost.
    broken = ToolRuntime(run_id="run_1", tools=tools, interaction=yes, log=FaultyLog(memory, "refused", 2))
    with pytest.raises(LogError):
        await broken.execute([call("c1", "save")])

    reopened = ToolRuntime(run_id="run_1", tools=tools, policy=RulePolicy(default="allow"), log=memory)
    result = await reopened.execute([call("c1", "save")])

    assert [observation.code for observation in result.observations] == ["ok"]
    assert ran == ["save", "save"]
    assert (await reopened.verify()).ok


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
