"""What would a policy have decided about the calls of recorded runs? Nothing is executed, and nobody is asked."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from ...domain.decision import Decision, Verdict, strictest
from ...domain.tool import JsonObject
from ..engine.rule_policy import RulePolicy
from ..files.policy_files import PolicyFiles
from ..interface import PolicyEvent
from .recorded import RecordedCall, Said

#: Opinions of the tools themselves. They hold beside every policy.
_NOT_OF_POLICY = frozenset({"tool limit", "path boundary"})


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that would be another one."""

    run_id: str
    call_id: str
    tool: str
    arguments: JsonObject
    was: Verdict
    was_rules: tuple[str, ...]
    now: Verdict
    now_rules: tuple[str, ...]
    reason: str
    #: What the person said who was asked then.
    said: Said

    @property
    def looser(self) -> bool:
        """Would the call go further than it did?"""
        order = list(Verdict)
        return order.index(self.now) < order.index(self.was)


class Skipped(msgspec.Struct, frozen=True):
    """Calls that could not be judged again."""

    reason: str
    count: int


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    flips: tuple[Flip, ...]
    unchanged: int
    #: The rules that had nothing to say about any of these calls.
    never_fired: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def backtest(policy: RulePolicy | PolicyFiles, calls: Iterable[RecordedCall]) -> Backtest:
    rules = policy.policy if isinstance(policy, PolicyFiles) else policy
    flips: list[Flip] = []
    fired: set[str] = set()
    lost: Counter[str] = Counter()
    unchanged = 0
    for call in calls:
        if call.event is None:
            lost[call.lost] += 1
            continue
        fired.update(rules.matching(call.event))
        flip = _flip(policy, call, call.event)
        if flip is None:
            unchanged += 1
        else:
            flips.append(flip)
    return Backtest(
        flips=tuple(flips),
        unchanged=unchanged,
        never_fired=tuple(rule.id for rule in policy.rules if rule.id not in fired),
        skipped=tuple(Skipped(reason, count) for reason, count in sorted(lost.items())),
    )


def _flip(policy: RulePolicy | PolicyFiles, call: RecordedCall, event: PolicyEvent) -> Flip | None:
    was, now = call.decision, _decision(policy, call.decision, event)
    if was.verdict is now.verdict:
        return None
    return Flip(
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


def _decision(policy: RulePolicy | PolicyFiles, was: Decision, event: PolicyEvent) -> Decision:
    now = policy.evaluate(event)
    return strictest((now, was)) if was.layer in _NOT_OF_POLICY else now
