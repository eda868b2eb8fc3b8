"""Unreachable rules: those that can never decide, because a stricter rule always matches too. Only certain cases are
found.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeAlias

import msgspec

from ...domain.decision import Verdict
from ..engine.rule import CONDITION_FIELDS, Rule

_STRICTNESS = {verdict.value: rank for rank, verdict in enumerate(Verdict)}
#: Rules with more conditions are compared whole.
_MAX_COMBINED = 6

RuleConditions: TypeAlias = frozenset[tuple[str, bytes]]


def find_unreachable_rules(rules: Sequence[Rule]) -> Iterator[tuple[int, int]]:
    """Yield pairs of indexes: a rule, and a stricter one that matches every call that it matches."""
    conditions = [_conditions_of(rule) for rule in rules]
    known: dict[tuple[RuleConditions, str], list[int]] = defaultdict(list)
    for index, rule in enumerate(rules):
        if not rule.expires_at:
            for pattern in rule.tools:
                known[conditions[index], pattern].append(index)
    for position, rule in enumerate(rules):
        patterns = frozenset(rule.tools)
        candidates = (
            index
            for wider in _iterate_subsets(conditions[position])
            for pattern in ("*", min(patterns))
            for index in known.get((wider, pattern), ())
            if _STRICTNESS[rules[index].verdict] > _STRICTNESS[rule.verdict]
        )
        for index in candidates:
            if "*" in rules[index].tools or patterns <= frozenset(rules[index].tools):
                yield position, index
                break


def _iterate_subsets(conditions: RuleConditions) -> Iterator[RuleConditions]:
    """Yield the same conditions, and each set of fewer of them: whatever has only those speaks at least as often."""
    sizes = range(len(conditions) + 1) if len(conditions) <= _MAX_COMBINED else (0, len(conditions))
    for size in sizes:
        yield from map(frozenset, combinations(conditions, size))


def _conditions_of(rule: Rule) -> RuleConditions:
    """Return what narrows the rule. The same condition catches at least as much when it refuses."""
    return frozenset(
        (name, msgspec.json.encode(value, order="sorted"))
        for name in CONDITION_FIELDS
        if (value := getattr(rule, name)) is not None and value not in ("", {})
    )
