"""Stage 4: may it start? Deny wins; ask waits for a person; whatever cannot be decided is denied."""

import asyncio
from collections.abc import Awaitable, Callable

from ..approvals.interface import InteractionProvider
from ..domain.call import Answer, PermittedCall, Question, ValidCall, Waiting
from ..domain.decision import Decision, Verdict, strictest
from ..domain.failure import Failure
from ..domain.ids import new_action_id
from ..domain.json import BadJson, check
from ..domain.payload import payload_hash
from ..domain.tool import Guardrail, Situation, ToolContext
from ..domain.words import error_text, sentence, shown
from ..policy.interface import PolicyEngine, PolicyEvent

_MAX_REASON_CHARS = 500


async def decide(valid: ValidCall, policy: PolicyEngine, situation: Situation, seconds: float) -> Decision:
    """The policy's decision and the tool's own opinion, the strictest of both. An error is a deny."""
    tool = valid.tool
    try:
        said: object = policy.evaluate(PolicyEvent(valid.call_id, tool, valid.checked, situation))
        match said:
            case Decision():
                decision = said
            case Awaitable():
                decision = await asyncio.wait_for(said, seconds)
            case _:
                decision = said
        if type(decision) is not Decision:
            return _undecided(f"it returned {type(decision).__name__}")
        opinion = tool.authorize(valid.copy(), situation) if tool.authorize is not None else None
        return decision if opinion is None else strictest((decision, opinion))
    except Exception as error:
        return _undecided(error_text(error))


def permit(
    valid: ValidCall, decision: Decision, run_id: str, cause: int, now: Callable[[], int]
) -> PermittedCall | Waiting | Failure:
    match decision.verdict:
        case Verdict.ALLOW:
            return PermittedCall(valid, decision, cause)
        case Verdict.DENY:
            return denied_by_policy(valid, decision)
        case Verdict.ASK | Verdict.REQUEST_INPUT:
            try:
                return Waiting(valid, decision, question(valid, decision, run_id, now()))
            except BadJson as error:
                return denied_by_policy(valid, _undecided(f"nobody can approve this exactly as it would run: {error}"))


def denied_by_policy(valid: ValidCall, decision: Decision) -> Failure:
    reason = decision.reason or "A rule refuses it."
    message = f"{valid.tool.name} was refused by policy ({decision.layer}): {sentence(reason)} Nothing was executed."
    details = {
        "reason": reason,
        "rule_ids": list(decision.rule_ids),
        "layer": decision.layer,
        "advice": decision.advice,
    }
    return Failure.of("policy_denied", message, details=details)


def denied_again(tool_name: str) -> Failure:
    """It was refused, and the run stopped before that was shown."""
    return Failure.of("policy_denied", f"{tool_name} was refused before. Nothing was executed.")


def question(valid: ValidCall, decision: Decision, run_id: str, now: int) -> Question:
    asks_value = decision.verdict is Verdict.REQUEST_INPUT
    return Question(
        action_id=new_action_id(),
        run_id=run_id,
        call_id=valid.call_id,
        tool_name=valid.tool.name,
        kind="input" if asks_value else "approval",
        prompt=decision.prompt or f"Run {valid.tool.name}? {decision.reason}",
        arguments=valid.copy(),
        payload_hash=payload_hash(run_id, valid.call_id, valid.tool, valid.arguments),
        risk=decision.risk or tuple(sorted(valid.tool.risk)),
        rule_ids=decision.rule_ids,
        target_arg=decision.target_arg,
        asked_at=now,
    )


async def ask(asked: Question, provider: InteractionProvider) -> Answer | None:
    """What the person says; None leaves the question open. A provider that fails has not said yes."""
    try:
        answer = await asyncio.wait_for(provider.ask(asked), provider.approval_timeout_s)
    except TimeoutError:
        return _fallback(asked, provider)
    except Exception as error:
        return Answer(approved=False, reason=f"The question could not be asked: {error_text(error)}.")
    if answer is None:
        return None
    if not isinstance(answer, Answer):  # pyright: ignore[reportUnnecessaryIsInstance] - a provider is not typed
        return Answer(approved=False, reason=f"The provider answered with {type(answer).__name__}.")
    try:
        check(answer.value)
    except BadJson as error:
        return Answer(approved=False, reason=f"The value is not JSON: {error}.", by=answer.by)
    return answer


def refused(asked: Question, answer: Answer) -> Failure:
    """The failure for an answer that is not a yes. Expired is not denied."""
    if answer.by == "headless":
        message = f"{asked.tool_name} needs the approval of a person, and nobody is there to ask. Nothing was executed."
        return Failure.of("user_denied", message, details={"action_id": asked.action_id, "by": answer.by})
    if answer.expired:
        message = f"Nobody approved {asked.tool_name} in time. Nothing was executed."
        return Failure.of("approval_expired", message, details={"action_id": asked.action_id})
    because = f": {answer.reason}" if answer.reason else ""
    message = f"{sentence(f'A person declined {asked.tool_name}{because}')} Nothing was executed."
    details = {"action_id": asked.action_id, "reason": answer.reason, "by": answer.by}
    return Failure.of("user_denied", message, details=details)


def payload_changed(asked: Question, valid: ValidCall) -> Failure | None:
    """Is what would run what was shown?"""
    try:
        now = payload_hash(asked.run_id, valid.call_id, valid.tool, valid.arguments)
    except BadJson as error:
        now = f"something else ({error})"
    if now == asked.payload_hash:
        return None
    message = f"{asked.tool_name} was approved for {asked.payload_hash}, but {now} would run. Nothing was executed."
    return Failure.of("payload_changed", message, details={"approved": asked.payload_hash, "actual": now})


async def guard(guardrails: tuple[Guardrail, ...], value: object, context: ToolContext, seconds: float) -> str | None:
    """The first reason to refuse, or None. A guardrail that fails refuses."""
    for guardrail in guardrails:
        try:
            reason = guardrail(value, context)
            if isinstance(reason, Awaitable):
                reason = await asyncio.wait_for(reason, seconds)
        except Exception as error:
            return f"a guardrail failed: {error_text(error)}"
        match reason:
            case None:
                continue
            case str():
                return reason
            case _:
                return shown(reason, _MAX_REASON_CHARS)
    return None


def guarded(valid: ValidCall, reason: str) -> Failure:
    message = f"A guardrail of {valid.tool.name} refused the call: {sentence(reason)} Nothing was executed."
    return Failure.of("guardrail_refused", message, details={"reason": reason})


def _fallback(asked: Question, provider: InteractionProvider) -> Answer | None:
    """What happens when nobody answers in time. A yes cannot stand for a value that nobody gave."""
    if provider.approval_fallback == "wait":
        return None
    approved = provider.approval_fallback == "approve" and asked.kind == "approval"
    return Answer(approved=approved, reason="Nobody answered in time.", expired=True, by="fallback")


def _undecided(why: str) -> Decision:
    reason = f"The policy could not decide ({why}), so the answer is no."
    return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("interlock:policy-error",), layer="policy error")
