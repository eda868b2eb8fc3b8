"""Child runs: a run inside a call of another run, with its own loop, approvals and log."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..domain.errors import (
    DecisionConflictError,
    PreconditionError,
    RunClaimedError,
    RunEndedError,
    RunSuspendedError,
)
from ..domain.event import SCHEMA_VERSION, RunStarted, decode_event
from ..domain.ids import child_run_id
from ..domain.state.ledger import CallEntry, Ledger
from ..domain.state.lifecycle import RunState
from ..domain.tool import CheckProblem, ToolContext
from ..storage.event_log import EventLog
from ..tools.agents import AgentAnswer


def list_open_children(ledger: Ledger) -> list[str]:
    """Return the child runs that calls wait for. A list: the run may continue while each is checked."""
    calls = [(call_id, call) for call_id, call in ledger.calls.items() if call.child_run_id and call.observed_seq < 0]
    return [call.child_run_id for call_id, call in calls if _is_child_of_call(ledger, call_id, call)]


async def find_started_children(log: EventLog, ledger: Ledger) -> list[str]:
    """Return the child runs that calls ever waited for, and those that open calls may have started before that was
    recorded.
    """
    calls = [
        call_id
        for call_id, call in ledger.calls.items()
        if (_is_child_of_call(ledger, call_id, call) if call.child_run_id else call.observed_seq < 0)
    ]
    named = [(child_run_id(ledger.run_id, call_id), call_id) for call_id in calls]
    return [run_id for run_id, call_id in named if await find_parent(log, run_id) == (ledger.run_id, call_id)]


async def find_parent(log: EventLog, run_id: str) -> tuple[str, str] | None:
    """Return the parent run and call that its first event names; None: there is no such run."""
    begun = await read_run_started(log, run_id)
    return None if begun is None else (begun.parent_run_id, begun.parent_call_id)


async def read_run_started(log: EventLog, run_id: str) -> RunStarted | None:
    """Return what its first event says; None: there is no such run."""
    first = await log.read(run_id, limit=1)
    if not first:
        return None
    fact = decode_event(first[0]).fact
    return fact if isinstance(fact, RunStarted) else RunStarted(schema=SCHEMA_VERSION)


def _is_child_of_call(ledger: Ledger, call_id: str, call: CallEntry) -> bool:
    return call.child_run_id == child_run_id(ledger.run_id, call_id)


if TYPE_CHECKING:
    from .handle import RunHandle
    from .runner import Runner

#: Answering a question holds the lease only briefly; a longer holder is driving the run.
_WAIT_SECONDS = 1.0
_POLL_SECONDS = 0.05
_PARENT_STOPPED = "The call around it was stopped."
_PAUSED = frozenset({RunState.PAUSED_APPROVAL, RunState.PAUSED_CONSENT, RunState.PAUSED_INPUT, RunState.RUNNING})


async def run_child(runner: "Runner", task: str, context: ToolContext, *, force: bool = False) -> AgentAnswer:
    """Start the child run, or resume it. Raise `RunSuspendedError` when it waits for a person, or when another process
    owns it and `force` is not set.
    """
    run_id = child_run_id(context.run_id, context.call_id)
    try:
        result = await (await _open_child(runner, run_id, task, context, force)).result()
    except asyncio.CancelledError:
        if not runner.is_closed:
            await asyncio.shield(_cancel_child(runner, run_id, context))
        raise
    if result.state in _PAUSED:
        raise RunSuspendedError(run_id)
    problem = ""
    if result.state in (RunState.FAILED, RunState.CANCELLED):
        problem = f"{runner.agent.name} did not finish: {result.message or result.status}"
    value = result.text if result.output is None else result.output
    return AgentAnswer(run_id=run_id, usage=result.usage, value=value, problem=problem)


async def _open_child(runner: "Runner", run_id: str, task: str, context: ToolContext, force: bool) -> "RunHandle":
    parent = await find_parent(runner.log, run_id)
    if parent is None:
        await _check_depth(runner, context.run_id)
        return await runner.start(task, run_id=run_id, parent_call=context)
    if parent != (context.run_id, context.call_id):
        raise PreconditionError(_foreign_run_problem(runner.agent.name, run_id))
    loop = asyncio.get_running_loop()
    until = loop.time() + _WAIT_SECONDS
    while True:
        try:
            return await runner.open(run_id, force=force)
        except RunClaimedError:
            if loop.time() > until:
                raise RunSuspendedError(run_id) from None
        await asyncio.sleep(_POLL_SECONDS)


def _foreign_run_problem(name: str, run_id: str) -> CheckProblem:
    message = (
        f"{name} was not asked: the log has a run {run_id} already, which was not started by this call. Nothing was "
        "executed. Do the task without it, or say what is missing."
    )
    return CheckProblem(message=message)


async def _cancel_child(runner: "Runner", run_id: str, context: ToolContext) -> None:
    """Cancel the child run of a cancelled call, however far it came."""
    handle = runner.live_handles.get(run_id)
    if handle is None and await find_parent(runner.log, run_id) != (context.run_id, context.call_id):
        return
    with suppress(RunEndedError, DecisionConflictError):
        await (runner.inbox.cancel(run_id, _PARENT_STOPPED) if handle is None else handle.cancel(_PARENT_STOPPED))


async def _check_depth(runner: "Runner", parent_run_id: str) -> None:
    depth, limit = 1, runner.max_depth
    while depth <= limit and (parent := await find_parent(runner.log, parent_run_id)) and (parent_run_id := parent[0]):
        depth += 1
    if depth > limit:
        raise PreconditionError(
            CheckProblem(
                message=f"{runner.agent.name} was not asked: agents that ask agents may go {limit} deep here. "
                "Do the task without it, or say what is missing."
            )
        )
