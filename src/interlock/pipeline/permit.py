"""Stage 4: may it start? Deny wins; ask waits for a person; whatever cannot be decided is denied."""

from contextlib import suppress
from functools import partial
from os.path import join, normpath

import msgspec

from ..domain.call import PermittedCall, ValidCall, WaitingCall
from ..domain.decision import Decision, Verdict, merge_decisions
from ..domain.event import PolicyEvaluated
from ..domain.outcome import Failure
from ..domain.tool import Guardrail, ResourceKind, ToolContext, ToolDefinition, declared_paths, relative_to_any
from ..policy.interface import PolicyEvent
from ..rendering.text import describe_error, quote_value
from .approval.binding import apply_grants
from .approval.question import require_approval
from .budgets import judge_budgets
from .context import RunContext
from .effects import judge_effect
from .events import storable_decision
from .refusals import denied_by_policy, undecided

_MAX_REASON_CHARS = 500


async def judge(valid: ValidCall, run: RunContext, *, is_started: bool = False) -> Decision:
    """Return the strictest decision of policy, the tool itself, budgets and earlier calls with the same effect.
    An error is a deny.

    An approval that a person gave before for the whole run answers what policy asks. Not for a call that has started,
    whose arguments a hook changed; its budgets are reserved.
    """
    tool, situation, parts = valid.tool, run.situation, run.parts
    try:
        event = PolicyEvent(valid.call_id, tool, valid.checked, situation)
        if parts.policy_may_block:
            decision = await parts.check(partial(parts.policy.evaluate, event))
        else:
            decision = parts.policy.evaluate(event)
        if type(decision) is not Decision:
            return undecided(f"it returned {type(decision).__name__}")
        rule = decision.effect_rule
        if tool.authorize is not None:
            opinion = await parts.check(tool.authorize, valid.copy_arguments(), situation)
            decision = decision if opinion is None else merge_decisions(decision, opinion)
        if tool.resources:
            decision = _with_judged_paths(decision, valid, event)
    except Exception as error:
        return undecided(describe_error(error))
    if run.ledger.grants and not is_started:
        decision = apply_grants(valid, decision, run)
    budgets = parts.budget_source
    if budgets is not None and budgets.budgets and not is_started:
        decision = await judge_budgets(valid, decision, run)
    if tool.effect is None and rule is None and not run.ledger.unknown_calls and not run.executions.lost:
        return decision
    return await judge_effect(valid, decision, rule, run)


def _with_judged_paths(decision: Decision, valid: ValidCall, event: PolicyEvent) -> Decision:
    """Name the paths that were evaluated: each path argument as written, and as resolved."""
    # The folder that an approved call starts in is bound to the approval in another way.
    kinds: tuple[ResourceKind, ...] = ("path", "folder") if decision.verdict is Verdict.ALLOW else ("path",)
    named = declared_paths(valid.tool, valid.arguments, kinds)
    if not named or decision.verdict is Verdict.DENY:
        return decision
    roots = (event.folder, event.real_path("."))
    places = dict.fromkeys(decision.paths)
    for path in named:
        with suppress(OSError, ValueError):  # no file has such a name
            for place in (normpath(join(event.folder, path)), event.real_path(path)):
                places[relative_to_any(place, roots) or place] = None
    return msgspec.structs.replace(decision, paths=tuple(places))


def permit(
    valid: ValidCall, decision: Decision, run: RunContext, cause: int | None = None
) -> PermittedCall | WaitingCall | Failure:
    """Record the decision, and act on it: permit the call, refuse it, or make it wait for a person."""
    says_more = (
        decision.prompt
        or decision.title
        or decision.risk
        or decision.paths
        or decision.advice
        or decision.suggested_rule
    )
    if says_more or decision.reason not in run.parts.redactor.plain_names:
        event = permission_event(valid.call_id, valid.tool, decision, run)
    else:  # there is nothing to redact
        event = PolicyEvaluated(call_id=valid.call_id, tool=valid.tool.spec.name, decision=decision)
    judged = run.recorder.add(event, valid.call_id, cause)
    match decision.verdict:
        case Verdict.ALLOW:
            return PermittedCall(valid, decision, judged)
        case Verdict.DENY:
            return denied_by_policy(valid, decision)
        case Verdict.ASK | Verdict.REQUEST_INPUT:
            return require_approval(valid, decision, run)


def permission_event(call_id: str, tool: ToolDefinition, decision: Decision, run: RunContext) -> PolicyEvaluated:
    """Return the event for a decision. One that allows needs no paths: the observation says what was opened."""
    if decision.verdict is Verdict.ALLOW and decision.paths:
        decision = msgspec.structs.replace(decision, paths=())
    return PolicyEvaluated(call_id=call_id, tool=tool.spec.name, decision=storable_decision(decision, run))


async def run_guardrails(
    guardrails: tuple[Guardrail, ...], value: object, context: ToolContext, run: RunContext
) -> str | None:
    """Return the first reason to refuse, or None. A guardrail that fails refuses."""
    for guardrail in guardrails:
        try:
            reason = await run.parts.check(guardrail, value, context)
        except Exception as error:
            return f"a guardrail failed: {describe_error(error)}"
        match reason:
            case None:
                continue
            case str():
                return reason
            case _:
                return quote_value(reason, _MAX_REASON_CHARS)
    return None
