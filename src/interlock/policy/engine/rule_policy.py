"""The policy engine of rules: a lookup by tool, then the few rules that may match what the call would do.

Deny beats request_input, which beats ask, which beats allow, whatever the order, source or detail of the rules. A call
with several parts, the commands of a script, is evaluated part by part, and the strictest part decides. Only an allow
rule loosens: a rule that asks or refuses never makes a decision less strict than it was without it.
Rules are kept sorted by id, so the same set gives the same decision, word for word, in any order.

What goes wrong refuses: a condition that raises, or that says anything but True or False, denies in the name of
its rule, and so do rules that want different arguments from a person. What cannot be seen asks: a script that could
not be read might be what a rule refuses.
"""

from collections.abc import Callable, Iterable, Sequence
from time import time_ns
from typing import Any

import msgspec

from ...domain.budget import BudgetRule, check_budget
from ...domain.decision import QUESTION_VERDICTS, Decision
from ...domain.egress import EgressRule, compile_egress_rule
from ...domain.errors import ConfigurationError
from ...domain.tool import CallContext, ToolDefinition
from ..interface import PolicyEvent
from .compiled_rule import check_effect, check_unique_ids, compile_rule, compute_policy_digest, names_tool
from .rule import DefaultVerdict, EffectDeclaration, ResourceDeclaration, Rule
from .rule_index import RuleIndex
from .suggested_rule import suggest_rule
from .tool_plan import PartEvaluation, PolicyDefault, ToolPlan, merge_decisions

_MAX_PLANS = 4096


class RulePolicy:
    """Decide by rules. Where none matches, `default` decides: the declared risk of the tool, or one verdict for all."""

    def __init__(  # noqa: PLR0913, PLR0917 - one for each section of a policy file
        self,
        rules: Iterable[Rule] = (),
        default: DefaultVerdict = "risk",
        resources: Iterable[ResourceDeclaration] = (),
        now: Callable[[], int] = time_ns,
        effects: Iterable[EffectDeclaration] = (),
        egress: Iterable[EgressRule] = (),
        budgets: Iterable[BudgetRule] = (),
    ) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.id))
        self.resources = tuple(resources)
        self.effects = tuple(effects)
        for declared in self.effects:
            check_effect(declared)
        #: Hosts that commands can reach. Decided on by the proxy of a command, connection by connection.
        self.egress = tuple(sorted(map(compile_egress_rule, egress), key=lambda rule: rule.id))
        #: What calls and model requests may use in a window. Counted by the runtime.
        self.budgets = tuple(sorted(budgets, key=lambda rule: rule.id))
        for budget in self.budgets:
            try:
                check_budget(budget)
            except ConfigurationError as error:
                raise ConfigurationError(f"Budget {budget.id!r:.102}: {error}") from None
        check_unique_ids([budget.id for budget in self.budgets], "budget")
        self.default: DefaultVerdict = default
        check_unique_ids([rule.id for rule in self.rules])
        if default not in ("risk", "allow", "ask", "deny"):
            raise ConfigurationError(f"A policy's default is risk, allow, ask or deny, not {default!r}")
        self._compiled = [compile_rule(rule) for rule in self.rules]
        RuleIndex(self._compiled)  # what cannot be matched is refused now, and not with the first call
        #: Whether deciding calls a function of the developer, which may block. Conditions in files are expressions.
        self.may_block = any(rule.when is not None and not rule.when_source for rule in self.rules)
        limits = {"egress": self.egress, "budgets": self.budgets}
        self.digest = compute_policy_digest(default, self._compiled, self.resources, self.effects, limits)
        self._now = now
        #: A policy that says nothing has nothing to be known by.
        declared = (self.rules, self.resources, self.effects, self.egress, self.budgets)
        has_content = any(declared) or default != "risk"
        self._fallback = PolicyDefault(
            default, self.digest if has_content else "", self.effects, has_egress=bool(self.egress)
        )
        self._plans: dict[Any, ToolPlan] = {}

    def evaluate(self, event: PolicyEvent) -> Decision:
        """Decide about a call."""
        tool, situation = event.tool, event.situation
        try:  # faster than `get`: this is evaluated for every call
            plan = self._plans[tool.spec.name, situation.mode, situation.interactive]
        except KeyError:
            plan = self._get_plan(tool, situation)
        if plan.tool is not tool:
            plan = self._get_plan(tool, situation)
        if plan.constant_decision is not None:
            return plan.constant_decision
        decision = _combine_parts(event, plan.evaluate_parts(event, self._now))
        return plan.with_effect_rule(decision) if plan.effect_rule is not None else decision

    def evaluate_parts(self, event: PolicyEvent) -> list[PartEvaluation]:
        """Return every part of the call with all decisions about it, for explanations."""
        return self._get_plan(event.tool, event.situation).evaluate_parts(event, self._now)

    def find_matching_rules(self, event: PolicyEvent) -> tuple[str, ...]:
        """Return the ids of the rules that match this call."""
        matched_ids = {
            rule_id for part in self.evaluate_parts(event) for each in part.rule_decisions for rule_id in each.rule_ids
        }
        return tuple(rule.id for rule in self.rules if rule.id in matched_ids)

    def _get_plan(self, tool: ToolDefinition, situation: CallContext) -> ToolPlan:
        key = (tool.spec.name, situation.mode, situation.interactive)
        plan = self._plans.get(key)
        if plan is None or (plan.tool is not tool and not _have_same_declaration(plan.tool, tool)):
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan = self._make_plan(tool, situation)
        return plan

    def _make_plan(self, tool: ToolDefinition, situation: CallContext) -> ToolPlan:
        declared = [each.arguments for each in self.resources if names_tool(each.tools, tool)]
        resources = dict.fromkeys(named for each in (tool.resources, *declared) for named in each.items())
        fitting = [rule for rule in self._compiled if rule.matches_tool(tool, situation)]
        return ToolPlan(tool, situation.mode, fitting, tuple(resources), self._fallback)


def _have_same_declaration(one: ToolDefinition, other: ToolDefinition) -> bool:
    """Return True if everything that rules depend on is the same."""
    return (
        one.risk == other.risk
        and one.origin == other.origin
        and one.source == other.source
        and one.source_name == other.source_name
        and one.resources == other.resources
        and one.contained == other.contained
        and (one.trial is None) == (other.trial is None)
    )


def _combine_parts(event: PolicyEvent, evaluated: Sequence[PartEvaluation]) -> Decision:
    """Combine the parts: the strictest decides. A question says what it is about: the risks, the paths, the rule that
    would do.
    """
    decision = evaluated[0].decision if len(evaluated) == 1 else merge_decisions([part.decision for part in evaluated])
    if decision.verdict not in QUESTION_VERDICTS:
        return decision
    parts = [part for part in evaluated if part.decision.verdict in QUESTION_VERDICTS]
    opaque_reasons = [part.part.opaque for part in parts if part.part.opaque]
    risk = (*decision.risk, *(fact for part in parts for fact in part.part.risk_descriptions))
    by_rule = any(part.rule_decisions for part in parts)
    places = (place for part in evaluated for path in part.part.files for place in path.targets)
    paths = (place.relative or place.absolute for place in places)
    decisive = (path for part in evaluated for path in part.part.decisive_files)
    return msgspec.structs.replace(
        decision,
        reason=decision.reason
        if not opaque_reasons
        else f"{decision.reason} Not everything can be known: {opaque_reasons[0]}.",
        risk=tuple(dict.fromkeys(risk)),
        paths=tuple(dict.fromkeys((*paths, *decisive))),
        names_all_code=all(part.part.names_all_code for part in evaluated),
        scope=decision.scope if by_rule else "rule",
        suggested_rule=decision.suggested_rule
        or ("" if by_rule else suggest_rule(event, [part.part for part in parts])),
    )
