"""Failures of calls that do not start: what happened, and that nothing was executed."""

from typing import Any

import msgspec

from ..domain.budget import BUDGET_EXCEEDED, BUDGET_LAYER, BUDGET_UNAVAILABLE, UNAVAILABLE_RULE
from ..domain.call import Answer, Question, ValidCall
from ..domain.decision import RECOVERY_LAYER, Decision, Verdict
from ..domain.outcome import Failure
from ..rendering.text import end_sentence


def denied_by_policy(valid: ValidCall, decision: Decision) -> Failure:
    """Build the failure of a call that policy denied."""
    reason = decision.reason or "A rule refuses it."
    message = (
        f"{valid.tool.name} was refused by policy ({decision.layer}): {end_sentence(reason)} Nothing was executed."
    )
    details: dict[str, Any] = {
        "reason": reason,
        "rule_ids": list(decision.rule_ids),
        "layer": decision.layer,
        "advice": decision.advice,
    }
    code = "effect_repeated" if decision.effect is not None and decision.effect.earlier_call_id else "policy_denied"
    if decision.layer == BUDGET_LAYER:
        exceeded = [use for use in decision.budgets if use.rule_id in decision.rule_ids]
        if exceeded:
            code, details["budgets"] = BUDGET_EXCEEDED, msgspec.to_builtins(exceeded)
        elif UNAVAILABLE_RULE in decision.rule_ids:
            code = BUDGET_UNAVAILABLE
    return Failure.from_code(code, message, details=details)


def denied_before(tool_name: str) -> Failure:
    """Return the failure of a call that was refused when the run stopped before showing it."""
    return Failure.from_code("policy_denied", f"{tool_name} was refused before. Nothing was executed.")


def unknown_outcome(tool_name: str, why: str) -> Failure:
    """Return the failure of a call that started and whose outcome is unknown."""
    message = (
        f"{tool_name} started, and the run stopped before its end was recorded, {why}. It is not run again."
        " Before you try again, look at what it may have done: read the files that it was to change, or git status."
    )
    return Failure.from_code("outcome_unknown", message)


def inexact_payload(valid: ValidCall, why: str) -> Failure:
    """Build the failure of a call whose payload cannot be bound to an approval."""
    return denied_by_policy(valid, undecided(f"this cannot be approved exactly as it would run: {why}"))


def rejection_failure(asked: Question, answer: Answer) -> Failure:
    """Return the failure for an answer that is not an approval. Expired is not denied."""
    if asked.layer == RECOVERY_LAYER:
        return unknown_outcome(asked.tool_name, "and no person approved another run")
    if asked.kind == "consent":
        return _consent_failure(asked, answer)
    if answer.by == "headless":
        message = f"{asked.tool_name} requires approval, and no person is available to ask. Nothing was executed."
        details = {"action_id": asked.action_id, "by": answer.by}
        return Failure.from_code("approval_unavailable", message, details=details)
    nothing = "Nothing was executed." if asked.trial is None else "It was only tried: nothing of it was kept."
    if answer.expired:
        message = f"Nobody approved {asked.tool_name} in time. {nothing}"
        return Failure.from_code("approval_expired", message, details={"action_id": asked.action_id})
    because = f": {answer.reason}" if answer.reason else ""
    message = f"{end_sentence(f'A person declined {asked.tool_name}{because}')} {nothing}"
    details = {"action_id": asked.action_id, "reason": answer.reason, "by": answer.by}
    return Failure.from_code("user_denied", message, details=details)


def _consent_failure(asked: Question, answer: Answer) -> Failure:
    details = {"action_id": asked.action_id, "provider": asked.provider, "reason": answer.reason, "by": answer.by}
    code = "consent_expired" if answer.expired else "consent_refused"
    what = "not given in time" if answer.expired else "refused"
    because = f": {answer.reason}" if answer.reason and not answer.expired else ""
    message = end_sentence(f"The consent that {asked.tool_name} needs at {asked.provider} was {what}{because}")
    return Failure.from_code(code, f"{message} Nothing was executed.", details=details)


def payload_changed(asked: Question, actual: str) -> Failure:
    """Return the failure for a payload that differs from what was shown."""
    message = f"{asked.tool_name} was approved for {asked.payload_hash}, but {actual} would run. Nothing was executed."
    return Failure.from_code("payload_changed", message, details={"approved": asked.payload_hash, "actual": actual})


def guardrail_failure(valid: ValidCall, reason: str) -> Failure:
    """Build the failure of a call that a guardrail refused."""
    message = f"A guardrail of {valid.tool.name} refused the call: {end_sentence(reason)} Nothing was executed."
    return Failure.from_code("guardrail_refused", message, details={"reason": reason})


def too_many_questions(tool_name: str, most: int | None) -> Failure:
    """Build the failure of a call that would exceed the limit of open questions."""
    message = f"{tool_name} needs an answer, and {most} questions of this run are open already. Nothing was executed."
    return Failure.from_code("too_many_questions", message)


def consent_unavailable(tool_name: str, why: str) -> Failure:
    """Build the failure of a call whose consent cannot be obtained."""
    return Failure.from_code(
        "consent_unavailable", f"{tool_name} needs the consent of a user, and {why} Nothing was executed."
    )


def undecided(why: str) -> Decision:
    """Build the denial for a policy that could not decide."""
    reason = f"The policy could not decide ({why}), so the answer is no."
    return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("interlock:policy-error",), layer="policy error")
