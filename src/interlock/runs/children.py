"""A run inside a call of another run: its own loop, its own approvals, its own log."""

import asyncio
from typing import TYPE_CHECKING, Any

from ..domain.errors import AgentExecutionError, RunClaimedError, RunSuspendedError
from ..domain.ids import child_run_id
from ..domain.lifecycle import RunState
from ..domain.tool import ToolContext

if TYPE_CHECKING:
    from .handle import RunHandle
    from .runner import Runner

_LOOK_SECONDS = 0.05
_PAUSED = frozenset({RunState.PAUSED_APPROVAL, RunState.PAUSED_CONSENT, RunState.PAUSED_INPUT, RunState.RUNNING})


async def ask_child(runner: "Runner", task: str, context: ToolContext) -> Any:
    """Start it, or go on with it where it stopped. `RunSuspendedError` when it waits for a person."""
    run_id = child_run_id(context.run_id, context.call_id)
    handle = await _handle(runner, run_id, task, context)
    try:
        result = await handle.result()
    except asyncio.CancelledError:
        await asyncio.shield(handle.cancel("The call around it was stopped."))
        raise
    if result.state in _PAUSED:
        raise RunSuspendedError(run_id)
    if result.state in (RunState.FAILED, RunState.CANCELLED):
        raise AgentExecutionError(f"{runner.agent.name} did not finish: {result.message or result.status}", ())
    return result.text if result.output is None else result.output


async def _handle(runner: "Runner", run_id: str, task: str, context: ToolContext) -> "RunHandle":
    if not await runner.log.read(run_id, limit=1):
        return await runner.start(task, run_id=run_id, parent=(context.run_id, context.call_id))
    while True:
        try:
            return await runner.open(run_id)
        except RunClaimedError:  # somebody answers it right now, or moves it on: then it need not be done here
            await asyncio.sleep(_LOOK_SECONDS)
