"""Execute what `next_step` decides, step by step, until a person is needed or the run is over.

Everything that a step finds out is an event before the next step is decided, and everything shown outside is durable
before it is shown. So the process may die anywhere: after a restart the same next step is decided.
"""

import asyncio

from ..domain.budget import BUDGET_EXCEEDED, BUDGET_UNAVAILABLE
from ..domain.errors import CONTEXT_LENGTH_EXCEEDED, ModelError, ToolError
from ..domain.event import ClaimContradicted, FinalAnswerRejected, RunCancelled, RunCompleted, RunFailed
from ..pipeline.call import end_open_calls
from ..pipeline.events import resume_if_unblocked
from .final_answer import check_final_answer
from .model_turn import ask_model
from .next_step import (
    AgentStep,
    AskModel,
    Cancel,
    Ended,
    Fail,
    Finish,
    Idle,
    Resume,
    Wait,
    check_call_budget,
    count_answered,
    find_exceeded_budget,
    next_step,
)
from .session import AgentSession
from .tracing import trace_agent

#: Why no model was asked, or none could answer; the run fails with the same code.
_STATED_CODES = (CONTEXT_LENGTH_EXCEEDED, BUDGET_EXCEEDED, BUDGET_UNAVAILABLE)


async def advance(session: AgentSession) -> AgentStep:
    """Run steps until the run stops, and return the last one: `Wait`, `Idle` or `Ended`."""
    executions = session.run.executions
    executions.driven_in = asyncio.get_running_loop()
    session.task = asyncio.current_task(executions.driven_in)
    try:
        if session.run.parts.telemetry.is_connected:
            return await trace_agent(session, _run_steps)
        return await _run_steps(session)
    finally:
        session.task = executions.driven_in = None


async def _run_steps(session: AgentSession) -> AgentStep:
    run = session.run
    while True:
        step = next_step(session.loop_state()) if not run.ledger.dialogue.open else await find_next_step(session)
        match step:
            case AskModel():  # which is the usual one
                await _run_model_turn(session)
            case Ended() | Wait() if session.stops_with_release:  # which makes it durable
                return step
            case Wait() | Idle() | Ended():
                await run.recorder.commit()
                if await find_next_step(session) == step:  # no answer or stop arrived meanwhile
                    return step
            case Resume():
                await _resume(session)
            case Finish(text=text):
                _finish(text, session)
            case Fail(reason=reason):
                run.recorder.add(RunFailed(message=reason))
            case Cancel(command=command):
                redact = run.parts.redactor.redact
                end_open_calls("The run was cancelled.", run)
                run.recorder.add(RunCancelled(message=redact(command.message), by=redact(command.by)))


async def find_next_step(session: AgentSession) -> AgentStep:
    """Decide what the loop does next. Child runs may have to be read for it."""
    is_waiting = session.run.ledger.dialogue.open and await session.is_any_child_waiting()
    return next_step(session.loop_state(is_child_waiting=is_waiting))


async def _resume(session: AgentSession) -> None:
    run = session.run
    calls = [run.ledger.calls[call_id] for call_id in run.ledger.open_calls()]
    session.resumed_with = count_answered(run.ledger)
    run = session.switch_agent(run.ledger.dialogue.answered_by)
    resume_if_unblocked(run.ledger.next_seq - 1, run)  # an answer may have arrived before the pause was recorded
    outcome = await session.executor.resume(run)
    session.add_observations(outcome)
    if outcome.error is not None:
        await _raise(outcome.error, session)
    is_unchanged = calls and not any(call.child_run_id or call.observed_seq >= 0 for call in calls)
    pending = any(action.is_open for action in run.ledger.actions.values())
    # There was no progress and no question is open, so there never will be.
    unanswered = count_answered(run.ledger) == session.resumed_with
    if is_unchanged and not pending and unanswered and isinstance(await find_next_step(session), Resume):
        names = ", ".join(call.tool for call in calls)
        run.recorder.add(RunFailed(message=f"The run cannot resume {names}. Start a new run, or fork this one."))


async def _run_model_turn(session: AgentSession) -> None:
    run = session.run
    try:
        intents = await ask_model(session)
    except ModelError as error:
        if run.parts.fail_safe.model_failure_policy == "keep":
            await run.recorder.commit()
            raise
        message = run.parts.redactor.redact(str(error))
        code = error.code if error.code in _STATED_CODES else ""
        run.recorder.add(RunFailed(message=message if code else f"The model gave no answer: {message}", code=code))
        return
    if intents:
        session.resumed_with = count_answered(run.ledger) if run.ledger.actions else 0
        refusal = check_call_budget(run.ledger.dialogue, session.budgets, len(intents))
        outcome = await session.executor.execute(session.run, intents, refusal=refusal)
        session.add_observations(outcome)
        if outcome.error is not None:
            await _raise(outcome.error, session)


async def _raise(error: ToolError, session: AgentSession) -> None:
    """Raise what a tool that raises has raised: the log has what happened."""
    await session.run.recorder.commit()
    raise error


def _finish(text: str, session: AgentSession) -> None:
    run = session.run
    spent = find_exceeded_budget(run.ledger.dialogue, session.budgets, session.active_seconds)
    problem = check_final_answer(text, session.agent, run.ledger, can_ask=not spent)
    match problem:
        case None:
            run.recorder.add(RunCompleted(message=text))
        case FinalAnswerRejected():
            correction_count = run.ledger.dialogue.refusals
            if correction_count < session.budgets.max_corrections:
                run.recorder.add(problem)
            else:
                run.recorder.add(RunFailed(message=f"After {correction_count} corrections: {problem.message}"))
        case ClaimContradicted():
            run.recorder.add(problem)
            if not problem.told:
                run.recorder.add(RunCompleted(message=text))
