"""Rules in code, compiled: a decision is a lookup by tool, then the conditions of the rules that have one.

Deny beats request_input, which beats ask, which beats allow, whatever the order, source or detail of the rules.
Rules are kept sorted by id, so the same set gives the same decision, word for word, in any order.

What goes wrong refuses: a condition that raises, or that says anything but True or False, denies in the name of
its rule, and so do rules that want different arguments from a person.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ..domain import json
from ..domain.decision import Decision, Verdict, default_decision, strictest
from ..domain.errors import ConfigurationError
from ..domain.tool import Origin, Risk, ToolDefinition
from .interface import PolicyEvent

Default: TypeAlias = Literal["risk", "allow", "ask", "deny"]
Condition: TypeAlias = Callable[[PolicyEvent], bool]

_OTHER_WORDS = {"defer": "ask", "request_approval": "ask", "request_user_input": "request_input"}
#: A pattern with anything else in it could never match the name of a tool.
_PATTERN = re.compile(r"[a-zA-Z0-9_\-*?!\[\]]+")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """It speaks about a call when everything that it names fits: the tool, its risk, its origin, `when`."""

    id: str
    #: A `Verdict`; also `defer` and `request_approval` for ask, `request_user_input` for request_input.
    verdict: str
    #: Names of tools, with `*`, `?` and `[abc]`.
    tools: str | Collection[str] = "*"
    #: Tools that have any of these risks. `allow` is narrower: tools that have risks, and none but these.
    risk: str | Collection[str] | None = None
    origin: Origin | None = None
    when: Condition | None = None
    reason: str = ""
    layer: str = "project rule"
    prompt: str = ""
    suggested_rule: str = ""
    advice: str = ""
    #: With request_input: the argument that the person's value becomes.
    target_arg: str = ""


class RulePolicy:
    """A set of rules. Where none speaks, `default` does: the tool's declared risk, or one verdict for all."""

    def __init__(self, rules: Iterable[Rule] = (), default: Default = "risk") -> None:
        self._rules = [_compiled(rule) for rule in sorted(rules, key=lambda rule: rule.id)]
        _check_unique([rule.id for rule in self._rules])
        if default not in ("risk", "allow", "ask", "deny"):
            raise ConfigurationError(f"A policy's default is risk, allow, ask or deny, not {default!r}")
        self._default: Default = default
        self.digest = _digest(default, self._rules)
        self._plans: dict[tuple[str, frozenset[Risk], Origin], _Plan] = {}

    def evaluate(self, event: PolicyEvent) -> Decision:
        tool = event.tool
        key = (tool.spec.name, tool.risk, tool.origin)
        try:
            plan = self._plans[key]
        except KeyError:
            plan = self._plans[key] = self._plan(tool)
        if not plan.conditional:
            return plan.decision
        said = [said for rule in plan.conditional if (said := _said(rule, event)) is not None]
        return _combined([*plan.unconditional, *said]) if said else plan.decision

    def _plan(self, tool: ToolDefinition) -> "_Plan":
        speaking = [rule for rule in self._rules if _fits(rule, tool)]
        decided = [(rule.when, _decision(rule, tool, self.digest)) for rule in speaking]
        unconditional = tuple(decision for when, decision in decided if when is None)
        return _Plan(
            decision=_combined(unconditional) if unconditional else _by_default(self._default, tool.risk),
            unconditional=unconditional,
            conditional=tuple((when, decision) for when, decision in decided if when is not None),
        )


class _Plan(msgspec.Struct, frozen=True):
    """What the rules say about a tool before its arguments are known."""

    #: When no condition holds.
    decision: Decision
    unconditional: tuple[Decision, ...]
    conditional: tuple[tuple[Condition, Decision], ...]


class _Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was checked."""

    id: str
    verdict: Verdict
    tools: tuple[str, ...]
    risk: frozenset[Risk] | None
    origin: Origin | None
    when: Condition | None
    texts: dict[str, str]


def _compiled(rule: Rule) -> _Compiled:
    verdict = _verdict(rule)
    if (verdict is Verdict.REQUEST_INPUT) != bool(rule.target_arg):
        raise ConfigurationError(f"Rule {rule.id!r}: request_input needs a target_arg, and nothing else has one")
    if rule.origin is not None and rule.origin not in get_args(Origin):
        raise ConfigurationError(f"Rule {rule.id!r}: the origin is one of {', '.join(get_args(Origin))}")
    if rule.when is not None and (not callable(rule.when) or inspect.iscoroutinefunction(rule.when)):
        raise ConfigurationError(f"Rule {rule.id!r}: when must be a plain function")
    return _Compiled(
        id=rule.id,
        verdict=verdict,
        tools=_patterns(rule),
        risk=_risks(rule),
        origin=rule.origin,
        when=rule.when,
        texts={
            "reason": rule.reason or f"Rule {rule.id} says {verdict}.",
            "layer": rule.layer,
            "prompt": rule.prompt,
            "suggested_rule": rule.suggested_rule,
            "advice": rule.advice,
            "target_arg": rule.target_arg,
        },
    )


def _verdict(rule: Rule) -> Verdict:
    try:
        return Verdict(_OTHER_WORDS.get(rule.verdict, rule.verdict))
    except ValueError:
        words = ", ".join((*Verdict, *_OTHER_WORDS))
        raise ConfigurationError(f"Rule {rule.id!r}: the verdict is one of {words}, not {rule.verdict!r}") from None


def _patterns(rule: Rule) -> tuple[str, ...]:
    patterns = (rule.tools,) if isinstance(rule.tools, str) else tuple(sorted(rule.tools))
    if not patterns or not all(map(_PATTERN.fullmatch, patterns)):
        raise ConfigurationError(f"Rule {rule.id!r}: no tool can be called {', '.join(patterns) or 'nothing'}")
    return patterns


def _risks(rule: Rule) -> frozenset[Risk] | None:
    if rule.risk is None:
        return None
    words = (rule.risk,) if isinstance(rule.risk, str) else tuple(rule.risk)
    try:
        risks = frozenset(map(Risk, words))
    except ValueError as error:
        raise ConfigurationError(f"Rule {rule.id!r}: {error}; a risk is one of {', '.join(Risk)}") from None
    if not risks:
        raise ConfigurationError(f"Rule {rule.id!r}: no tool has a risk out of none; leave risk out for all tools")
    return risks


def _check_unique(ids: Sequence[str]) -> None:
    twice = sorted({rule_id for rule_id in ids if ids.count(rule_id) > 1})
    if twice or "" in ids:
        raise ConfigurationError(f"Every rule needs an id of its own; not so: {', '.join(twice) or 'an empty one'}")


def _digest(default: Default, rules: Sequence[_Compiled]) -> str:
    """Over everything that the rules declare. Of a condition only its name is known."""
    declared = [
        [rule.id, rule.verdict, rule.tools, sorted(rule.risk or ()), rule.origin, _name(rule.when), rule.texts]
        for rule in rules
    ]
    return "sha256:" + sha256(json.encode_sorted([default, declared])).hexdigest()


def _name(when: Condition | None) -> str | None:
    if when is None:
        return None
    return f"{when.__module__}.{getattr(when, '__qualname__', type(when).__qualname__)}"


def _fits(rule: _Compiled, tool: ToolDefinition) -> bool:
    if rule.origin is not None and rule.origin != tool.origin:
        return False
    if rule.risk is not None and not _risk_fits(rule.verdict, rule.risk, tool.risk):
        return False
    return any(fnmatchcase(tool.name, pattern) for pattern in rule.tools)


def _risk_fits(verdict: Verdict, named: frozenset[Risk], declared: frozenset[Risk]) -> bool:
    # To allow what reads must not allow what reads and executes.
    return bool(declared) and declared <= named if verdict is Verdict.ALLOW else bool(declared & named)


def _decision(rule: _Compiled, tool: ToolDefinition, digest: str) -> Decision:
    return Decision(
        verdict=rule.verdict,
        rule_ids=(rule.id,),
        risk=tuple(sorted(tool.risk)),
        policy_digest=digest,
        **rule.texts,
    )


def _by_default(default: Default, risk: frozenset[Risk]) -> Decision:
    if default == "risk":
        return default_decision(risk)
    reason = f"No rule matches, and then this policy says {default}."
    return Decision(verdict=Verdict(default), reason=reason, risk=tuple(sorted(risk)))


def _said(rule: tuple[Condition, Decision], event: PolicyEvent) -> Decision | None:
    when, decision = rule
    holds: Any
    try:
        holds = when(event)
    except Exception as error:
        return _refused(decision, f"raised {type(error).__name__}")
    if holds is False:
        return None
    return decision if holds is True else _refused(decision, f"returned a {type(holds).__name__}")


def _refused(decision: Decision, fault: str) -> Decision:
    reason = f"The condition of rule {decision.rule_ids[0]} {fault}, so the call is refused."
    return msgspec.structs.replace(decision, verdict=Verdict.DENY, reason=reason, target_arg="")


def _combined(decisions: Sequence[Decision]) -> Decision:
    """The strictest verdict, with the words of every rule that gave it."""
    verdict = strictest(decisions).verdict
    winners = sorted((said for said in decisions if said.verdict is verdict), key=lambda said: said.rule_ids)
    if len(winners) == 1:
        return winners[0]
    merged = msgspec.structs.replace(
        winners[0],
        rule_ids=tuple(rule_id for winner in winners for rule_id in winner.rule_ids),
        reason=_joined(" ", (winner.reason for winner in winners)),
        layer=_joined(", ", (winner.layer for winner in winners)),
        prompt=_joined("\n", (winner.prompt for winner in winners)),
        suggested_rule=_joined("\n", (winner.suggested_rule for winner in winners)),
        advice=_joined(" ", (winner.advice for winner in winners)),
    )
    arguments = {winner.target_arg for winner in winners}
    if len(arguments) == 1:
        return merged
    reason = f"The rules want different arguments from a person: {', '.join(sorted(arguments))}."
    return msgspec.structs.replace(merged, verdict=Verdict.DENY, reason=reason, target_arg="")


def _joined(separator: str, texts: Iterable[str]) -> str:
    return separator.join(dict.fromkeys(filter(None, texts)))
