"""Explanations of a decision, for people: every matching rule, part by part, and where each rule is enforced."""

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from time import time_ns
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec

from ...domain.budget import BudgetRule, charge_call, from_millionths
from ...domain.decision import Decision
from ...domain.effect import EffectRule, render_template
from ...domain.egress import EgressRule, EgressRules
from ...domain.tool import JsonObject, Mask
from ...rendering.text import to_compact_json
from ..engine.rule import CONDITION_FIELDS, CommandPattern, Rule
from ..engine.rule_policy import RulePolicy
from ..engine.tool_plan import PartEvaluation
from ..interface import PolicyEvent

EnforcementPoint: TypeAlias = Literal["gate", "arguments", "commands", "sandbox"]


#: The tool whose commands egress rules are about.
_SHELL = "bash"


class ExplainedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the call would do."""

    what: str
    #: Why it could not all be known; empty when it could.
    opaque: str
    risk: tuple[str, ...]
    facts: tuple[str, ...]
    paths: tuple[str, ...]
    hosts: tuple[str, ...]
    said: tuple[Decision, ...]
    decision: Decision


class Enforcement(msgspec.Struct, frozen=True):
    """Where and how a rule is enforced."""

    rule_id: str
    point: EnforcementPoint
    how: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a decision about one call."""

    tool: str
    decision: Decision
    parts: tuple[ExplainedPart, ...]
    enforcement: tuple[Enforcement, ...]
    policy_digest: str
    #: What the policy says about the effect of the call, with its key; empty when nothing.
    effect: str = ""
    #: What egress rules say about the hosts that the call names, one line each.
    egress: tuple[str, ...] = ()
    #: The budgets that the call counts to, and what it uses of each, one line each.
    budgets: tuple[str, ...] = ()


def explain(policy: RulePolicy, event: PolicyEvent) -> Explanation:
    """Explain the decision about a call: which rules matched which part."""
    evaluated = policy.evaluate_parts(event)
    matched_ids = {rule_id for part in evaluated for said in part.rule_decisions for rule_id in said.rule_ids}
    decision = policy.evaluate(event)
    return Explanation(
        tool=event.tool_name,
        decision=decision,
        parts=tuple(_explain_part(part) for part in evaluated),
        enforcement=tuple(
            point for rule in policy.rules if rule.id in matched_ids for point in _find_enforcement(rule)
        ),
        policy_digest=policy.digest,
        effect="" if decision.effect_rule is None else _describe_effect(decision.effect_rule, event.arguments),
        egress=tuple(_describe_egress(policy, event, evaluated)),
        budgets=tuple(_describe_budget(rule, event) for rule in find_budgets(policy, event)),
    )


def find_budgets(policy: RulePolicy, event: PolicyEvent) -> tuple[BudgetRule, ...]:
    """Return the budgets that a call counts to."""
    return tuple(rule for rule in policy.budgets if rule.matches_call(event.tool, event.situation))


def _describe_budget(rule: BudgetRule, event: PolicyEvent) -> str:
    try:
        charge = charge_call(rule, event.tool, event.arguments, event.situation, 0)
    except ValueError as error:
        return f"{rule.id}: the call is refused: {error}"
    needs = f"this call needs {from_millionths(charge.amount):,.15g}{'' if charge.fits(0) else ', more than the limit'}"
    over = {"deny": "refused", "ask": "asked about"}[rule.then]
    return f"{rule.id}: {rule.describe()}; {needs}; over the limit it is {over}"


def _describe_egress(policy: RulePolicy, event: PolicyEvent, evaluated: Iterable[PartEvaluation]) -> Iterator[str]:
    if "command" not in event.tool.resources.values() or not policy.egress:
        return
    rules = EgressRules(find_egress_rules(policy))
    for host in dict.fromkeys(host for part in evaluated for host in part.part.hosts):
        named = {port: rules.decide(host, port) for port in (443, *(p for rule in rules.rules for p in rule.port_list))}
        best = next((port for port, each in named.items() if each.outcome != "unnamed"), 443)
        decision = named[best]
        by = f" by {', '.join(decision.rule_ids)}" if decision.rule_ids else ": no egress rule names it"
        yield f"{host}:{best} {decision.outcome if decision.rule_ids else 'is refused'}{by}"


def _describe_effect(rule: EffectRule, arguments: JsonObject) -> str:
    try:
        key = render_template(rule.key, arguments) if rule.key else "the tool's own key"
    except ValueError as error:
        return f"the call is refused: effect key {rule.key!r}: {error}"
    again = {"deny": "refused", "ask": "asked about", "allow": "allowed"}[rule.repeat]
    after = "" if rule.repeat_after_seconds is None else f", as a new one after {rule.repeat_after_seconds:g} s"
    return f"{key}; a second time is {again}{after}"


class RuleSource(Protocol):
    """A policy whose rules can be listed."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...


def find_masks(policy: RuleSource, now: int | None = None, tool: str = "") -> tuple[Mask, ...]:
    """Return the paths that rules deny to every tool, or to the named one, for the sandbox. `now` is in nanoseconds
    since 1970; rules that ended do not count.
    """
    at = time_ns() if now is None else now
    return tuple(
        Mask(rule.id, pattern, rule.access)
        for rule in policy.rules
        if rule.verdict == "deny" and _applies_unconditionally(rule, tool) and not 0 < rule.expires_at <= at
        for pattern in _as_tuple(rule.path)
    )


def find_egress_rules(policy: RuleSource, now: int | None = None) -> tuple[EgressRule, ...]:
    """Return the rules for the proxy of commands: the egress rules, and hosts that other rules deny to every tool."""
    rules: tuple[EgressRule, ...] = getattr(policy, "egress", ())
    at = time_ns() if now is None else now
    denied = (
        EgressRule(verdict="deny", hosts=_as_tuple(rule.host), id=rule.id, layer=rule.layer)
        for rule in policy.rules
        if rule.verdict == "deny" and _applies_unconditionally(rule, _SHELL, "host") and not 0 < rule.expires_at <= at
    )
    return (*rules, *denied) if rules else ()


def _applies_unconditionally(rule: Rule, tool: str, field: str = "path") -> bool:
    others = (name for name in CONDITION_FIELDS if name not in (field, "access", "arguments", "when_source"))
    return (
        bool(getattr(rule, field))
        and any(pattern == "*" or fnmatchcase(tool, pattern) for pattern in _as_tuple(rule.tools))
        and all(getattr(rule, name) is None for name in others)
        and rule.when is None
        and not rule.arguments
    )


def _explain_part(part: PartEvaluation) -> ExplainedPart:
    subject, command = part.part, part.part.command
    return ExplainedPart(
        what="the call" if command is None else " ".join((*command.wrappers, *command.argv)),
        opaque=subject.opaque,
        risk=tuple(sorted(subject.risk)),
        facts=subject.risk_descriptions,
        paths=tuple(dict.fromkeys(path.given for path in subject.paths)),
        hosts=subject.hosts,
        said=part.rule_decisions,
        decision=part.decision,
    )


def _find_enforcement(rule: Rule) -> list[Enforcement]:
    kind = "paths" if rule.path else "hosts"
    points: list[tuple[EnforcementPoint, str]] = [("gate", "before every call, whichever way it came in")]
    if rule.path or rule.host:
        arguments = "the arguments of file tools, MCP tools and other tools are declared to name"
        points.append(("arguments", f"on the {kind} that {arguments}"))
        points.append(("commands", f"on the {kind} that the words of commands and redirects name"))
    if rule.command:
        points.append(("commands", "on every simple command of a script, with wrappers taken off"))
    if find_masks(RulePolicy([rule])):
        how = "read-only for" if rule.access == "write" else "hidden from"
        points.append(("sandbox", f"as a mask: to be {how} commands, also where none of their words name it"))
    return [Enforcement(rule.id, point, how) for point, how in points]


def _as_tuple(given: str | Collection[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def describe_rule(rule: Rule) -> str:
    """Describe the conditions of a rule in one line."""
    conditions = {name.removesuffix("_source"): getattr(rule, name) for name in ("tools", *CONDITION_FIELDS)}
    conditions["arguments"] = msgspec.to_builtins(rule.arguments)
    conditions["approver"] = rule.approver if rule.approver != "person" else ""
    if rule.command is not None:
        commands = [rule.command] if isinstance(rule.command, str) else rule.command
        conditions["command"] = [each if isinstance(each, str) else _format_pattern(each) for each in commands]
    return ", ".join(
        f"{name} {_format_value(value)}" for name, value in conditions.items() if value not in (None, "", {})
    )


def describe_egress_rule(rule: EgressRule) -> str:
    """Describe what an egress rule is about in one line."""
    parts = {
        "hosts": rule.hosts,
        "ports": rule.port_list,
        "methods": rule.methods,
        "credential": rule.credential,
    }
    return ", ".join(f"{name} {_format_value(value)}" for name, value in parts.items() if value)


def _format_pattern(given: CommandPattern) -> str:
    return " ".join(given.words) + ("" if given.exact else " ...")


def _format_value(value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return " | ".join(map(str, cast(Iterable[object], value)))
    return to_compact_json(value)
