"""Budgets of calls: what a call would use, whether it fits, and the reservation right before it starts.

A call is judged by what the ledger has counted, and reserved when nothing else can refuse it any more. Only the
reservation decides between calls that start at once: the ledger accepts what fits, and the others are judged again. A
call that started counts, whatever came of it; so does one whose process died after the reservation.
"""

import msgspec

from ..domain.budget import (
    BUDGET_LAYER,
    BudgetCharge,
    BudgetRule,
    BudgetUse,
    make_key,
    make_use,
    sum_argument,
    to_millionths,
)
from ..domain.call import PermittedCall, ValidCall
from ..domain.decision import Decision, Verdict
from ..rendering.text import describe_error, end_sentence
from .context import RunContext
from .refusals import undecided

_ONE_CALL = to_millionths(1)


async def judge_budgets(valid: ValidCall, decision: Decision, run: RunContext) -> Decision:
    """Return the decision with the budgets of the call considered: allowed, asked about, or denied as over budget."""
    rules = _find_rules(valid, run)
    if not rules or decision.verdict is Verdict.DENY:
        return decision
    try:
        charges = _make_charges(valid, rules, run)
    except ValueError as error:
        names = ", ".join(rule.id for rule in rules)
        return _deny(decision, rules, f"What the call uses of the budget {names} is not known: {error}.", ())
    try:
        used = await run.parts.budget_ledger.read([charge.key for charge in charges])
    except Exception as error:
        return undecided(f"its budgets could not be read: {describe_error(error)}")
    uses = tuple(map(make_use, rules, charges, used))
    exceeded = [(rule, use) for rule, use in zip(rules, uses, strict=True) if use.is_exceeded]
    if not exceeded:
        return msgspec.structs.replace(decision, budgets=uses)
    reason = " ".join(_describe(rule, use) for rule, use in exceeded)
    found = [rule for rule, _ in exceeded]
    if any(rule.then == "deny" for rule in found):
        return _deny(decision, found, reason, uses)
    return _ask(valid, decision, found, reason, uses)


async def reserve_budgets(permitted: PermittedCall, run: RunContext) -> tuple[BudgetCharge, ...] | None:
    """Reserve what a call uses that is about to start. Return the charges, or None when they do not fit any more."""
    rules = _find_rules(permitted.valid, run)
    if not rules:
        return ()
    approved: tuple[str, ...] = ()
    if permitted.action_id:
        approved = run.ledger.actions[permitted.action_id].question.rule_ids
    try:
        charges = _make_charges(permitted.valid, rules, run, approved)
    except ValueError:  # the arguments were edited: judging says what is wrong
        return None
    reservation = await run.parts.budget_ledger.reserve(charges)
    return charges if reservation.is_accepted else None


async def release_budgets(charges: tuple[BudgetCharge, ...], run: RunContext) -> None:
    """Take back what was reserved for a call that does not start."""
    for charge in charges:
        await run.parts.budget_ledger.adjust(charge.key, -charge.amount)


def _find_rules(valid: ValidCall, run: RunContext) -> tuple[BudgetRule, ...]:
    source = run.parts.budget_source
    rules = source.budgets if source is not None else ()
    return tuple(rule for rule in rules if rule.matches_call(valid.tool, run.situation))


def _make_charges(
    valid: ValidCall, rules: tuple[BudgetRule, ...], run: RunContext, approved: tuple[str, ...] = ()
) -> tuple[BudgetCharge, ...]:
    """Return what the call uses of each budget. A budget whose question a person approved has no limit for it."""
    now, arguments = run.parts.clock.now(), valid.arguments
    return tuple(
        BudgetCharge(
            make_key(rule, run.situation, valid.tool.name, now),
            sum_argument(rule, arguments) if rule.measure == "sum" else _ONE_CALL,
            None if rule.then == "ask" and rule.rule_id in approved else to_millionths(rule.limit),
        )
        for rule in rules
    )


def _describe(rule: BudgetRule, use: BudgetUse) -> str:
    return f"{use.describe()} {end_sentence(rule.reason)}" if rule.reason else use.describe()


def _deny(
    decision: Decision, rules: list[BudgetRule] | tuple[BudgetRule, ...], reason: str, uses: tuple[BudgetUse, ...]
) -> Decision:
    return msgspec.structs.replace(
        decision,
        verdict=Verdict.DENY,
        reason=reason,
        rule_ids=tuple(rule.rule_id for rule in rules),
        layer=BUDGET_LAYER,
        scope="once",
        suggested_rule="",
        target_arg="",
        budgets=uses,
    )


def _ask(
    valid: ValidCall, decision: Decision, rules: list[BudgetRule], reason: str, uses: tuple[BudgetUse, ...]
) -> Decision:
    """Return the decision that asks a person about a call over budget, together with what the policy asks."""
    rule_ids = tuple(rule.rule_id for rule in rules)
    layer, verdict, prompt = BUDGET_LAYER, Verdict.ASK, f"Run {valid.tool.name} over budget? {reason}"
    title = decision.title or valid.tool.title
    if decision.verdict is not Verdict.ALLOW:
        reason, layer, verdict = f"{decision.reason} {reason}", f"{decision.layer}, {layer}", decision.verdict
        rule_ids, prompt = (*decision.rule_ids, *rule_ids), f"{decision.prompt}\n{prompt}".lstrip()
    return msgspec.structs.replace(
        decision,
        verdict=verdict,
        reason=reason,
        rule_ids=rule_ids,
        layer=layer,
        risk=tuple(dict.fromkeys(("over budget", *decision.risk))),
        prompt=prompt,
        title=f"Over budget: {title}" if title else f"Over budget: {valid.tool.name}",
        suggested_rule="",
        scope="once",
        approver="person",
        budgets=uses,
    )
