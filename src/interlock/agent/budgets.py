"""Budgets of model requests: tokens and cost are reserved before a request, and corrected when its usage is known.

What a request will use is estimated: its text, and the longest answer that the agent allows. So requests of many runs
at once do not pass a budget together, as far as the estimate holds. Cost is estimated where the provider has prices.
"""

from ..domain.budget import (
    BUDGET_EXCEEDED,
    MODEL_MEASURES,
    BudgetCharge,
    BudgetMeasure,
    BudgetRule,
    make_key,
    make_use,
    to_millionths,
)
from ..domain.errors import ModelError
from ..domain.json import encode
from ..domain.messages import Usage
from ..models.interface import ModelRequest
from ..pipeline.context import RunContext
from ..rendering.text import describe_error, end_sentence
from .agent import Agent
from .context import estimate_message, estimate_tokens

#: How long an answer may be, where the agent does not say.
_ANSWER_TOKENS = 2_048


async def reserve_request(
    agent: Agent, request: ModelRequest, estimated_tokens: int, run: RunContext
) -> tuple[BudgetCharge, ...]:
    """Reserve what a request may use, and return the charges. Raise `ModelError` with the code `budget_exceeded` when a
    budget has not enough left: then the model was not asked.
    """
    source, situation, now = run.parts.budget_source, run.situation, run.parts.clock.now()
    rules = [
        rule
        for rule in (source.budgets if source is not None else ())
        if rule.measure in MODEL_MEASURES and rule.applies_to(situation.agent)
    ]
    if not rules:
        return ()
    usage = _estimate(agent, request, estimated_tokens)
    charges = tuple(
        BudgetCharge(make_key(rule, situation, "", now), _measure(rule.measure, usage), to_millionths(rule.limit))
        for rule in rules
    )
    try:
        reservation = await run.parts.budget_ledger.reserve(charges)
    except Exception as error:
        reason = f"The budgets could not be reserved ({describe_error(error)}), so the model was not asked."
        raise ModelError(reason, retryable=True) from error
    used = reservation.used
    spent = [each for each in zip(rules, charges, used, strict=True) if _is_spent(*each)]
    if reservation.is_accepted and not spent:
        return charges
    if reservation.is_accepted:
        await settle_request(charges, Usage(), run)
    found = spent or [each for each in zip(rules, charges, used, strict=True) if _is_over(*each)]
    message = " ".join(_describe(*each) for each in found)
    raise ModelError(f"{message} The model was not asked.", code=BUDGET_EXCEEDED)


async def settle_request(charges: tuple[BudgetCharge, ...], usage: Usage, run: RunContext) -> None:
    """Correct the reservation of a request to what it used."""
    for charge in charges:
        measure: BudgetMeasure = "cost" if charge.key.measure.startswith("cost") else "tokens"
        difference = _measure(measure, usage) - charge.amount
        if difference:
            await run.parts.budget_ledger.adjust(charge.key, difference)


def _is_spent(rule: BudgetRule, charge: BudgetCharge, used: int) -> bool:
    """Return True if nothing is left. A request whose cost cannot be estimated would fit otherwise."""
    return used >= to_millionths(rule.limit)


def _is_over(rule: BudgetRule, charge: BudgetCharge, used: int) -> bool:
    return used + charge.amount > to_millionths(rule.limit)


def _describe(rule: BudgetRule, charge: BudgetCharge, used: int) -> str:
    text = make_use(rule, charge, used).describe()
    return f"{text} {end_sentence(rule.reason)}" if rule.reason else text


def _estimate(agent: Agent, request: ModelRequest, estimated_tokens: int) -> Usage:
    """Estimate the usage of a request from its text and the longest answer."""
    tokens = estimated_tokens or (
        sum(map(estimate_message, request.messages))
        + estimate_tokens(request.instructions)
        + estimate_tokens(encode(request.tools).decode() if request.tools else "")
    )
    usage = Usage(input_tokens=tokens, output_tokens=request.max_output_tokens or _ANSWER_TOKENS)
    estimate_cost = getattr(agent.provider, "estimate_cost", None)
    cost = estimate_cost(usage, request.model) if estimate_cost is not None else 0.0
    return Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost=cost)


def _measure(measure: BudgetMeasure, usage: Usage) -> int:
    return to_millionths(usage.cost if measure == "cost" else usage.input_tokens + usage.output_tokens)
