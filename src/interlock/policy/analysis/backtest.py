"""Backtests: what a policy would have decided about the calls of recorded runs. Nothing is executed or asked."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from ...domain.decision import Decision, Verdict, pick_strictest
from ...domain.tool import JsonObject
from ..engine.rule_policy import RulePolicy
from ..files.policy_files import PolicyFiles
from ..interface import PolicyEvent
from .budget_tally import BudgetTally, BudgetTrial
from .recorded_calls import RecordedAnswer, RecordedCall, RecordedRequest

#: Decisions of the tools themselves. They apply beside every policy.
_NON_POLICY_LAYERS = frozenset({"tool limit", "path boundary"})


class DecisionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that would be different."""

    run_id: str
    call_id: str
    tool: str
    arguments: JsonObject
    was: Verdict
    was_rules: tuple[str, ...]
    now: Verdict
    now_rules: tuple[str, ...]
    reason: str
    #: The answer of the person who was asked then.
    said: RecordedAnswer

    @property
    def looser(self) -> bool:
        """True when the new decision is less strict."""
        order = list(Verdict)
        return order.index(self.now) < order.index(self.was)


class SkippedCalls(msgspec.Struct, frozen=True):
    """Calls that could not be evaluated again."""

    reason: str
    count: int


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backtest: changed decisions, unused rules and skipped calls."""

    flips: tuple[DecisionChange, ...]
    unchanged: int
    #: The rules that matched none of these calls.
    never_fired: tuple[str, ...]
    skipped: tuple[SkippedCalls, ...]
    #: What each budget would have meant.
    budgets: tuple[BudgetTrial, ...] = ()


def backtest(
    policy: RulePolicy | PolicyFiles, calls: Iterable[RecordedCall], requests: Iterable[RecordedRequest] = ()
) -> Backtest:
    """Evaluate recorded calls with another policy and compare the decisions. Budgets are counted from 0, in the order
    of time, with the model requests.
    """
    rules = policy.policy if isinstance(policy, PolicyFiles) else policy
    evaluated: list[tuple[RecordedCall, PolicyEvent, Decision]] = []
    fired: set[str] = set()
    skip_reasons: Counter[str] = Counter()
    for call in calls:
        if call.event is None:
            skip_reasons[call.lost] += 1
            continue
        fired.update(rules.find_matching_rules(call.event))
        evaluated.append((call, call.event, _evaluate_again(policy, call.decision, call.event)))
    tally = BudgetTally(rules.budgets)
    if rules.budgets:
        evaluated.sort(key=lambda each: each[0].at)
        evaluated = [(call, event, tally.count_call(call, event, now)) for call, event, now in evaluated]
        tally.count_requests(requests)
    flips = [_make_change(*each) for each in evaluated if each[0].decision.verdict is not each[2].verdict]
    return Backtest(
        flips=tuple(flips),
        unchanged=len(evaluated) - len(flips),
        never_fired=tuple(rule.id for rule in policy.rules if rule.id not in fired),
        skipped=tuple(SkippedCalls(reason, count) for reason, count in sorted(skip_reasons.items())),
        budgets=tally.list_trials(),
    )


def _make_change(call: RecordedCall, event: PolicyEvent, now: Decision) -> DecisionChange:
    was = call.decision
    return DecisionChange(
        run_id=call.run_id,
        call_id=call.call_id,
        tool=call.tool,
        arguments=event.arguments,
        was=was.verdict,
        was_rules=was.rule_ids,
        now=now.verdict,
        now_rules=now.rule_ids,
        reason=now.reason,
        said=call.said,
    )


def _evaluate_again(policy: RulePolicy | PolicyFiles, was: Decision, event: PolicyEvent) -> Decision:
    now = policy.evaluate(event)
    return pick_strictest((now, was)) if was.layer in _NON_POLICY_LAYERS else now
