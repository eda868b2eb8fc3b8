"""Budgets of model requests: tokens and cost are reserved before a request, and corrected when its usage is known.

What a request will use is estimated: its text, and the longest answer that the agent allows. So requests of many runs
at once do not pass a budget together, as far as the estimate holds. Cost is estimated with the prices of the provider.
A provider of your own without `estimate_cost` reports the cost with its answer, and only that counts.
"""

import msgspec

from ..domain.budget import (
    BUDGET_EXCEEDED,
    BUDGET_UNAVAILABLE,
    MODEL_MEASURES,
    BudgetCharge,
    BudgetMeasure,
    BudgetRule,
    make_key,
    make_use,
    to_millionths,
)
from ..domain.errors import ModelError
from ..domain.event import WarningRaised
from ..domain.json import encode
from ..domain.messages import Usage
from ..models.interface import ModelRequest
from ..models.usage import clamp_usage, estimate_cost
from ..pipeline.context import RunContext
from ..rendering.text import describe_error, end_sentence
from .agent import Agent
from .context import estimate_message, estimate_tokens

#: How long an answer may be, where the agent does not say.
_ANSWER_TOKENS = 2_048


async def reserve_request(
    agent: Agent, request: ModelRequest, estimated_tokens: int, run: RunContext
) -> tuple[BudgetCharge, ...]:
    """Reserve what a request may use, and return the charges. Raise `ModelError` when a budget has not enough left
    (`budget_exceeded`), or when that cannot be found out (`budget_unavailable`): then the model was not asked.
    """
    source, situation, now = run.parts.budget_source, run.situation, run.parts.clock.now()
    rules = [
        rule
        for rule in (source.budgets if source is not None else ())
        if rule.measure in MODEL_MEASURES and rule.applies_to(situation.agent)
    ]
    if not rules:
        return ()
    usage = _estimate_tokens(request, estimated_tokens)
    if any(rule.measure == "cost" for rule in rules):
        usage = _estimate_cost(agent, request, usage)
    charges = tuple(
        BudgetCharge(make_key(rule, situation, "", now), _measure(rule.measure, usage), to_millionths(rule.limit))
        for rule in rules
    )
    try:
        reservation = await run.parts.budget_ledger.reserve(charges)
    except Exception as error:
        reason = f"The budgets could not be reserved ({describe_error(error)}), so the model was not asked."
        raise ModelError(reason, retryable=True, code=BUDGET_UNAVAILABLE) from error
    used = reservation.used
    spent = [each for each in zip(rules, charges, used, strict=True) if _is_spent(*each)]
    if reservation.is_accepted and not spent:
        return charges
    if reservation.is_accepted:
        await settle_request(charges, Usage(), run)
    found = spent or [each for each in zip(rules, charges, used, strict=True) if not each[1].fits(each[2])]
    message = " ".join(_describe(*each) for each in found)
    raise ModelError(f"{message} The model was not asked.", code=BUDGET_EXCEEDED)


async def settle_request(charges: tuple[BudgetCharge, ...], usage: Usage, run: RunContext) -> None:
    """Correct the reservation of a request to what it used. One that cannot be corrected counts as it is: the answer of
    the model is not lost with it.
    """
    usage = clamp_usage(usage)
    for charge in charges:
        measure: BudgetMeasure = "cost" if charge.key.measure.startswith("cost") else "tokens"
        difference = _measure(measure, usage) - charge.amount
        if not difference:
            continue
        try:
            await run.parts.budget_ledger.adjust(charge.key, difference)
        except Exception as error:
            message = f"What a model request used of budget {charge.key.budget} could not be corrected"
            redacted = run.parts.redactor.redact(f"{message}: {describe_error(error)}")
            run.recorder.add(WarningRaised(message=redacted))


def _is_spent(rule: BudgetRule, charge: BudgetCharge, used: int) -> bool:
    """Return True if nothing is left. A request whose cost cannot be estimated would fit otherwise."""
    return used >= to_millionths(rule.limit)


def _describe(rule: BudgetRule, charge: BudgetCharge, used: int) -> str:
    text = make_use(rule, charge, used).describe()
    return f"{text} {end_sentence(rule.reason)}" if rule.reason else text


def _estimate_tokens(request: ModelRequest, estimated_tokens: int) -> Usage:
    """Estimate the tokens of a request from its text and the longest answer."""
    tokens = estimated_tokens or (
        sum(map(estimate_message, request.messages))
        + estimate_tokens(request.instructions)
        + estimate_tokens(encode(request.tools).decode() if request.tools else "")
    )
    return Usage(input_tokens=tokens, output_tokens=request.max_output_tokens or _ANSWER_TOKENS)


def _estimate_cost(agent: Agent, request: ModelRequest, usage: Usage) -> Usage:
    """Add the cost by the provider's prices. Without prices nothing would be counted, so the request is refused."""
    cost = estimate_cost(agent.provider, usage, request.model)
    if cost is None:
        message = "A budget counts cost, and the provider has no prices for this model. The model was not asked."
        raise ModelError(f"{message} Configure its prices.", code=BUDGET_UNAVAILABLE)
    return clamp_usage(msgspec.structs.replace(usage, cost=cost))


def _measure(measure: BudgetMeasure, usage: Usage) -> int:
    return to_millionths(usage.cost if measure == "cost" else usage.input_tokens + usage.output_tokens)
