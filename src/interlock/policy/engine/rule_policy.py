"""Rules, applied: a decision is a lookup by tool, then the few rules that may speak about what the call would do.

Deny beats request_input, which beats ask, which beats allow, whatever the order, source or detail of the rules. A call
with several parts, the commands of a script, is judged part by part, and the strictest part decides. Only an allow
rule loosens: a rule that asks or refuses never makes a decision less strict than it was without it.
Rules are kept sorted by id, so the same set gives the same decision, word for word, in any order.

What goes wrong refuses: a condition that raises, or that says anything but True or False, denies in the name of
its rule, and so do rules that want different arguments from a person. What cannot be seen asks: a script that could
not be read might be what a rule refuses.
"""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from time import time_ns
from typing import Any

import msgspec

from ...domain.decision import QUESTIONS, Decision
from ...domain.errors import ConfigurationError
from ...domain.tool import Situation, ToolDefinition
from ..interface import PolicyEvent
from .combine import combined
from .compiled import check_unique, compile_rule, policy_digest
from .index import Index
from .narrowest import narrowest_rule
from .plan import Fallback, Judged, Plan
from .rule import Default, ResourceDeclaration, Rule

_MAX_PLANS = 4096


class RulePolicy:
    """A set of rules. Where none speaks, `default` does: the tool's declared risk, or one verdict for all."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        default: Default = "risk",
        resources: Iterable[ResourceDeclaration] = (),
        now: Callable[[], int] = time_ns,
    ) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.id))
        self.resources = tuple(resources)
        self.default: Default = default
        check_unique([rule.id for rule in self.rules])
        if default not in ("risk", "allow", "ask", "deny"):
            raise ConfigurationError(f"A policy's default is risk, allow, ask or deny, not {default!r}")
        self._compiled = [compile_rule(rule) for rule in self.rules]
        Index(self._compiled)  # what cannot be matched is refused now, and not with the first call
        self.digest = policy_digest(default, self._compiled, self.resources)
        self._now = now
        #: A policy that says nothing has nothing to be known by.
        speaks = bool(self.rules or self.resources or default != "risk")
        self._fallback = Fallback(default, self.digest if speaks else "")
        self._plans: dict[Any, Plan] = {}

    def evaluate(self, event: PolicyEvent) -> Decision:
        plan = self._plan(event.tool, event.situation)
        if plan.settled is not None:
            return plan.settled
        return _whole(event, plan.judge(event, self._now))

    def judge(self, event: PolicyEvent) -> list[Judged]:
        """Every part of the call with everything that was said about it, for people who want to know why."""
        return self._plan(event.tool, event.situation).judge(event, self._now)

    def matching(self, event: PolicyEvent) -> tuple[str, ...]:
        """The ids of the rules that speak about this call."""
        said = {rule_id for part in self.judge(event) for each in part.said for rule_id in each.rule_ids}
        return tuple(rule.id for rule in self.rules if rule.id in said)

    def _plan(self, tool: ToolDefinition, situation: Situation) -> Plan:
        key = (tool.spec.name, situation.mode, situation.interactive)
        plan = self._plans.get(key)
        if plan is None or (plan.tool is not tool and not _declare_the_same(plan.tool, tool)):
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan = self._make_plan(tool, situation)
        return plan

    def _make_plan(self, tool: ToolDefinition, situation: Situation) -> Plan:
        declared = [each.arguments for each in self.resources if fnmatchcase(tool.name, each.tools)]
        resources = dict.fromkeys(named for each in (tool.resources, *declared) for named in each.items())
        fitting = [rule for rule in self._compiled if rule.fits_tool(tool, situation)]
        return Plan(tool, situation.mode, fitting, tuple(resources), self._fallback)


def _declare_the_same(one: ToolDefinition, other: ToolDefinition) -> bool:
    """Everything that rules go by."""
    return (
        one.risk == other.risk
        and one.origin == other.origin
        and one.source == other.source
        and one.resources == other.resources
    )


def _whole(event: PolicyEvent, judged: Sequence[Judged]) -> Decision:
    """The strictest part decides. A question says what it is about: the risks, the paths, the rule that would do."""
    decision = judged[0].decision if len(judged) == 1 else combined([part.decision for part in judged])
    if decision.verdict not in QUESTIONS:
        return decision
    parts = [part for part in judged if part.decision.verdict in QUESTIONS]
    why = [part.subject.opaque for part in parts if part.subject.opaque]
    risk = (*decision.risk, *(fact for part in parts for fact in part.subject.facts))
    by_rule = any(part.said for part in parts)
    places = (place for part in judged for path in part.subject.paths for place in path.places)
    paths = (place.relative or place.absolute for place in places)
    decisive = (path for part in judged for path in part.subject.decisive_files)
    return msgspec.structs.replace(
        decision,
        reason=decision.reason if not why else f"{decision.reason} Not everything can be known: {why[0]}.",
        risk=tuple(dict.fromkeys(risk)),
        paths=tuple(dict.fromkeys((*paths, *decisive))),
        names_all_code=all(part.subject.names_all_code for part in judged),
        scope=decision.scope if by_rule else "rule",
        suggested_rule=decision.suggested_rule or ("" if by_rule else narrowest_rule(event, parts)),
    )
