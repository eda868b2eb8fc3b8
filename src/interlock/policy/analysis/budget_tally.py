"""Count what recorded calls and model requests would have used of budgets. Nothing is reserved."""

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...domain.budget import (
    BUDGET_LAYER,
    MODEL_MEASURES,
    BudgetCharge,
    BudgetKey,
    BudgetRule,
    charge_call,
    from_millionths,
    make_key,
    make_use,
    to_millionths,
)
from ...domain.decision import QUESTION_VERDICTS, Decision, Verdict
from ..interface import PolicyEvent
from .recorded_calls import RecordedCall, RecordedRequest


class BudgetTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget would have meant for recorded calls or model requests."""

    id: str
    #: The budget in one line.
    about: str
    #: How many counted, and how many would not have fit.
    counted: int
    exceeded: int
    limit: float
    #: The most that was used in one window, by whom, and when that window ended, in nanoseconds since 1970.
    peak: float = 0.0
    peak_subject: Mapping[str, str] = {}
    peak_ends_at: int = 0


class BudgetTally:
    """Counts calls and requests in the order of their times."""

    def __init__(self, rules: Sequence[BudgetRule]) -> None:
        self._rules = rules
        self._used: dict[BudgetKey, int] = {}
        self._counted: dict[str, int] = {rule.id: 0 for rule in rules}
        self._exceeded: dict[str, int] = {rule.id: 0 for rule in rules}

    def count_call(self, call: RecordedCall, event: PolicyEvent, decision: Decision) -> Decision:
        """Return the decision about a call with budgets, and count the call if it would have run. A call that a person
        would have been asked about counts if it ran then.
        """
        rules = [rule for rule in self._rules if rule.matches_call(event.tool, event.situation)]
        if not rules or decision.verdict is Verdict.DENY:
            return decision
        try:
            charges = [charge_call(rule, event.tool, event.arguments, event.situation, call.at) for rule in rules]
        except ValueError as error:
            rule_ids = tuple(rule.rule_id for rule in rules if rule.measure == "sum")
            return _decide(decision, Verdict.DENY, rule_ids, f"What the call uses is not known: {error}.")
        exceeded = self._find_exceeded(rules, charges)
        if exceeded:
            is_denied = any(rule.then == "deny" for rule, _ in exceeded)
            asks = decision.verdict if decision.verdict in QUESTION_VERDICTS else Verdict.ASK
            reason = " ".join(
                make_use(rule, charge, self._used.get(charge.key, 0)).describe() for rule, charge in exceeded
            )
            rule_ids = tuple(rule.rule_id for rule, _ in exceeded)
            decision = _decide(decision, Verdict.DENY if is_denied else asks, rule_ids, reason)
        runs = decision.verdict is Verdict.ALLOW or (decision.verdict in QUESTION_VERDICTS and call.is_started)
        if runs:
            self._add(charges)
        return decision

    def count_requests(self, requests: Iterable[RecordedRequest]) -> None:
        """Count the model requests that would have fit."""
        rules = [rule for rule in self._rules if rule.measure in MODEL_MEASURES]
        for request in sorted(requests, key=lambda request: request.at) if rules else ():
            found = [rule for rule in rules if rule.applies_to(request.situation.agent)]
            charges = [_charge_request(rule, request) for rule in found]
            if not self._find_exceeded(found, charges):
                self._add(charges)

    def list_trials(self) -> tuple[BudgetTrial, ...]:
        """Return what each budget would have meant."""
        return tuple(map(self._make_trial, self._rules))

    def _find_exceeded(
        self, rules: Sequence[BudgetRule], charges: Sequence[BudgetCharge]
    ) -> list[tuple[BudgetRule, BudgetCharge]]:
        exceeded = [
            (rule, charge)
            for rule, charge in zip(rules, charges, strict=True)
            if not charge.fits(self._used.get(charge.key, 0))
        ]
        for rule, _ in exceeded:
            self._exceeded[rule.id] += 1
        return exceeded

    def _add(self, charges: Iterable[BudgetCharge]) -> None:
        for charge in charges:
            self._used[charge.key] = self._used.get(charge.key, 0) + charge.amount
            self._counted[charge.key.budget] += 1

    def _make_trial(self, rule: BudgetRule) -> BudgetTrial:
        counters = [(used, key) for key, used in self._used.items() if key.budget == rule.id]
        peak, key = max(counters, default=(0, None))
        return BudgetTrial(
            id=rule.id,
            about=rule.describe(),
            counted=self._counted[rule.id],
            exceeded=self._exceeded[rule.id],
            limit=rule.limit,
            peak=from_millionths(peak),
            peak_subject={} if key is None else json.loads(key.subject),
            peak_ends_at=0 if key is None else key.ends_at * 1_000_000_000,
        )


def _charge_request(rule: BudgetRule, request: RecordedRequest) -> BudgetCharge:
    usage = request.usage
    amount = to_millionths(usage.cost if rule.measure == "cost" else usage.input_tokens + usage.output_tokens)
    return BudgetCharge(make_key(rule, request.situation, "", request.at), amount, to_millionths(rule.limit))


def _decide(decision: Decision, verdict: Verdict, rule_ids: tuple[str, ...], reason: str) -> Decision:
    return msgspec.structs.replace(decision, verdict=verdict, rule_ids=rule_ids, reason=reason, layer=BUDGET_LAYER)
