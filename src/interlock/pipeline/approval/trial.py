"""Try a call before a person is asked about it, so that they approve what it does.

The trial has its turn like an execution: calls that conflict with it do not run meanwhile. A call without an effect
needs no answer; what it printed is its result. What cannot be tried is asked about before it runs.
"""

import asyncio
from contextlib import suppress

import msgspec

from ...domain.call import PermittedCall, Question, ValidCall, WaitingCall
from ...domain.decision import TRIAL_LAYER, Decision, Verdict
from ...domain.outcome import Failure
from ...domain.payload import ApprovalBinding, BindingChange
from ...domain.tool import ToolContext
from ...domain.trial import Trial
from ...rendering.text import describe_error
from ..context import RunContext
from ..events import trial_event
from ..permit import permission_event
from .question import ask_before, build_question, hash_question


async def try_call(waiting: WaitingCall, question: Question, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Try a waiting call that has its turn. Return it permitted when it has no effect, else with a question that shows
    the effect.
    """
    valid, decision = waiting.valid, waiting.decision
    runner, clock = valid.tool.trial, run.parts.clock
    assert runner is not None  # noqa: S101 - `is_to_try` says so
    began = clock.elapsed()
    try:
        async with asyncio.timeout(valid.tool.timeout_seconds):
            trial = await runner.run(valid.copy_arguments(), _make_context(valid, decision, run))
        if not isinstance(trial, Trial):  # pyright: ignore[reportUnnecessaryIsInstance] - a runner is not typed
            raise TypeError(f"the trial returned {type(trial).__name__}")
    except Exception as error:
        asked = ask_before(decision, describe_error(error).rstrip("."))
        plain = build_question(valid, asked, question.bound, run)
        plain = msgspec.structs.replace(
            plain, changes=question.changes, replaces=question.replaces, edited_by=question.edited_by
        )
        return hash_question(valid, asked, plain)
    event = trial_event(valid.call_id, trial, (clock.elapsed() - began) / 1e6, run)
    tried = run.recorder.add(event, valid.call_id)
    if trial.has_effect:
        return _ask_about(trial, waiting, question)
    allowed = msgspec.structs.replace(
        decision, verdict=Verdict.ALLOW, reason="It was tried, and it changes nothing.", layer=TRIAL_LAYER, risk=()
    )
    cause = run.recorder.add(permission_event(valid.call_id, valid.tool, allowed, run), valid.call_id, tried)
    return PermittedCall(valid, allowed, cause, bound=ApprovalBinding(trial=trial.digest))


async def find_trial_drift(question: Question, valid: ValidCall) -> tuple[BindingChange, ...]:
    """Return what the tried effect of a question is based on and differs now."""
    runner, digest = valid.tool.trial, question.bound.trial
    if not digest or runner is None:
        return ()
    try:
        return await asyncio.to_thread(runner.find_drift, digest)
    except Exception as error:
        return (BindingChange("tried effect", "kept", f"cannot be compared: {describe_error(error)}"),)


async def discard_trial(question: Question, valid: ValidCall) -> None:
    """Forget the tried effect of a question that was refused."""
    runner, digest = valid.tool.trial, question.bound.trial
    if digest and runner is not None:
        with suppress(Exception):  # it is removed by its age later
            await asyncio.to_thread(runner.discard, digest)


def _make_context(valid: ValidCall, decision: Decision, run: RunContext) -> ToolContext:
    context = run.context(valid.known.accepted.intent)
    context.judged = frozenset(decision.paths)
    context.reach = run.parts.sandbox.describe_scope(valid.tool, valid.copy_arguments(), run.situation)
    return context


def _ask_about(trial: Trial, waiting: WaitingCall, question: Question) -> WaitingCall | Failure:
    # What it does is known now, whatever code does it.
    surroundings = msgspec.structs.replace(question.bound.surroundings, unnamed_code=False)
    bound = msgspec.structs.replace(question.bound, surroundings=surroundings, trial=trial.digest)
    return hash_question(waiting.valid, waiting.decision, msgspec.structs.replace(question, bound=bound, trial=trial))
