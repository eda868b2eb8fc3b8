"""Budgets of calls: what a call would use, whether it fits, and the reservation right before it starts.

A call is judged by what the ledger has counted, and reserved when nothing else can refuse it any more. Only the
reservation decides between calls that start at once: the ledger accepts what fits, and the others are judged again. A
call that started counts, whatever came of it; so does one whose process died after the reservation.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ..domain.budget import (
    BUDGET_LAYER,
    UNAVAILABLE_RULE,
    BudgetCharge,
    BudgetRule,
    BudgetUse,
    charge_call,
    make_use,
)
from ..domain.call import PermittedCall, ValidCall
from ..domain.decision import Decision, Verdict, ask_also
from ..domain.outcome import Failure
from ..rendering.text import describe_error, end_sentence
from .context import RunContext
from .refusals import denied_by_policy


async def judge_budgets(valid: ValidCall, decision: Decision, run: RunContext) -> Decision:
    """Return the decision with the budgets of the call considered: allowed, asked about, or denied as over budget."""
    rules = _find_rules(valid, run)
    if not rules or decision.verdict is Verdict.DENY:
        return decision
    try:
        charges = _make_charges(valid, rules, run)
    except ValueError as error:
        return _deny_unknown(decision, rules, error)
    try:
        used = await run.parts.budget_ledger.read([charge.key for charge in charges])
    except Exception as error:
        return _deny_unavailable(decision, "read", error)
    uses = tuple(map(make_use, rules, charges, used))
    exceeded = [rule for rule, charge, before in zip(rules, charges, used, strict=True) if not charge.fits(before)]
    if not exceeded:
        return msgspec.structs.replace(decision, budgets=uses)
    if any(rule.then == "deny" for rule in exceeded):
        return _deny_exceeded(decision, exceeded, uses)
    return _ask(valid, decision, exceeded, uses)


async def reserve_budgets(permitted: PermittedCall, run: RunContext) -> tuple[BudgetCharge, ...] | Failure | None:
    """Reserve what a call uses that is about to start. Return the charges, None when they do not fit any more, or why
    that cannot be found out.
    """
    rules = _find_rules(permitted.valid, run)
    if not rules:
        return ()
    try:
        charges = _make_charges(permitted.valid, rules, run, _find_approved(permitted, run))
    except ValueError:  # the arguments were edited: judging says what is wrong
        return None
    try:
        reservation = await run.parts.budget_ledger.reserve(charges)
    except Exception as error:
        return denied_by_policy(permitted.valid, _deny_unavailable(permitted.decision, "reserved", error))
    return charges if reservation.is_accepted else None


async def reserve_changed(permitted: PermittedCall, changed: ValidCall, run: RunContext) -> Failure | None:
    """Reserve what the arguments of a started call use more since a hook changed them. Return the refusal when that
    does not fit. What they use less stays reserved.
    """
    rules = tuple(rule for rule in _find_rules(changed, run) if rule.measure == "sum")
    if not rules:
        return None
    approved, decision = _find_approved(permitted, run), permitted.decision
    try:
        before = _make_charges(permitted.valid, rules, run, approved)
        after = _make_charges(changed, rules, run, approved)
    except ValueError as error:
        return denied_by_policy(changed, _deny_unknown(decision, rules, error))
    charges = tuple(
        msgspec.structs.replace(new, amount=max(0, new.amount - old.amount))
        for old, new in zip(before, after, strict=True)
    )
    try:
        reservation = await run.parts.budget_ledger.reserve(charges)
    except Exception as error:
        return denied_by_policy(changed, _deny_unavailable(decision, "reserved", error))
    if reservation.is_accepted:
        return None
    uses = tuple(map(make_use, rules, charges, reservation.used))
    fits = (charge.fits(used) for charge, used in zip(charges, reservation.used, strict=True))
    exceeded = [rule for rule, is_enough in zip(rules, fits, strict=True) if not is_enough]
    return denied_by_policy(changed, _deny_exceeded(decision, exceeded, uses))


async def release_budgets(charges: tuple[BudgetCharge, ...], run: RunContext) -> None:
    """Take back what was reserved for a call that does not start. What cannot be taken back counts as used."""
    for charge in charges:
        with suppress(Exception):
            await run.parts.budget_ledger.adjust(charge.key, -charge.amount)


def _find_rules(valid: ValidCall, run: RunContext) -> tuple[BudgetRule, ...]:
    source = run.parts.budget_source
    rules = source.budgets if source is not None else ()
    return tuple(rule for rule in rules if rule.matches_call(valid.tool, run.situation))


def _find_approved(permitted: PermittedCall, run: RunContext) -> tuple[str, ...]:
    """Return the rules of the question that a person approved."""
    return run.ledger.actions[permitted.action_id].question.rule_ids if permitted.action_id else ()


def _make_charges(
    valid: ValidCall, rules: tuple[BudgetRule, ...], run: RunContext, approved: tuple[str, ...] = ()
) -> tuple[BudgetCharge, ...]:
    """Return what the call uses of each budget. A budget whose question a person approved has no limit for it."""
    now = run.parts.clock.now()
    charges = (charge_call(rule, valid.tool, valid.arguments, run.situation, now) for rule in rules)
    return tuple(
        msgspec.structs.replace(charge, limit=None) if rule.then == "ask" and rule.rule_id in approved else charge
        for rule, charge in zip(rules, charges, strict=True)
    )


def _describe(rules: Sequence[BudgetRule], uses: tuple[BudgetUse, ...]) -> str:
    found = {use.id: use.describe() for use in uses}
    return " ".join(
        f"{found[rule.id]} {end_sentence(rule.reason)}" if rule.reason else found[rule.id] for rule in rules
    )


def _deny_exceeded(decision: Decision, rules: Sequence[BudgetRule], uses: tuple[BudgetUse, ...]) -> Decision:
    return _deny(decision, tuple(rule.rule_id for rule in rules), _describe(rules, uses), uses)


def _deny_unknown(decision: Decision, rules: Sequence[BudgetRule], error: ValueError) -> Decision:
    rules = [rule for rule in rules if rule.measure == "sum"]
    names = ", ".join(rule.id for rule in rules)
    reason = f"What the call uses of the budget {names} is not known: {error}."
    return _deny(decision, tuple(rule.rule_id for rule in rules), reason)


def _deny_unavailable(decision: Decision, verb: str, error: Exception) -> Decision:
    reason = f"The budgets of the call could not be {verb} ({describe_error(error)}), so it is denied."
    return _deny(decision, (UNAVAILABLE_RULE,), reason)


def _deny(decision: Decision, rule_ids: tuple[str, ...], reason: str, uses: tuple[BudgetUse, ...] = ()) -> Decision:
    return msgspec.structs.replace(
        decision,
        verdict=Verdict.DENY,
        reason=reason,
        rule_ids=rule_ids,
        layer=BUDGET_LAYER,
        scope="once",
        suggested_rule="",
        target_arg="",
        budgets=uses,
    )


def _ask(valid: ValidCall, decision: Decision, rules: Sequence[BudgetRule], uses: tuple[BudgetUse, ...]) -> Decision:
    """Return the decision that asks a person about a call over budget, together with what the policy asks."""
    reason = _describe(rules, uses)
    asked = Decision(
        verdict=Verdict.ASK,
        reason=reason,
        rule_ids=tuple(rule.rule_id for rule in rules),
        layer=BUDGET_LAYER,
        risk=("over budget",),
        prompt=f"Run {valid.tool.name} over budget? {reason}",
    )
    title = f"Over budget: {decision.title or valid.tool.title or valid.tool.name}"
    return msgspec.structs.replace(ask_also(decision, asked), title=title, approver="person", budgets=uses)
