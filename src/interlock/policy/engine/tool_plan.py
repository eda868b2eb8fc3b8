"""The evaluation plan for a tool in a mode: what is known before the arguments, and how a call is evaluated from
there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ...domain.decision import APPROVAL_SCOPES, QUESTION_VERDICTS, Decision, Verdict, pick_strictest
from ...domain.effect import EffectRule, pick_strictest_repeat
from ...domain.tool import JsonObject, PermissionMode, Risk, ToolDefinition
from ..interface import PolicyEvent
from ..shell.command_match import find_inner_words, normalize_program_name
from .call_parts import CallPart, Resources, extract_call_parts
from .compiled_rule import CompiledRule, names_tool
from .modes import decide_by_default, deny_by_mode
from .rule import DefaultVerdict, EffectDeclaration
from .rule_index import RuleIndex


def merge_decisions(decisions: Sequence[Decision]) -> Decision:
    """Combine the decisions about one part: the strictest verdict wins."""
    verdict = pick_strictest(decisions).verdict
    winners = sorted((said for said in decisions if said.verdict is verdict), key=lambda said: said.rule_ids)
    if verdict is Verdict.REQUEST_INPUT:
        # A value that a person gives also approves what other rules ask about, so the question must mention it.
        winners += [
            msgspec.structs.replace(said, verdict=verdict, target_arg=winners[0].target_arg)
            for said in decisions
            if said.verdict is Verdict.ASK
        ]
    if len(winners) == 1:
        return winners[0]
    merged = msgspec.structs.replace(
        winners[0],
        rule_ids=tuple(dict.fromkeys(rule_id for winner in winners for rule_id in winner.rule_ids)),
        reason=_join_unique(" ", (winner.reason for winner in winners)),
        layer=_join_unique(", ", (winner.layer for winner in winners)),
        risk=tuple(dict.fromkeys(risk for winner in winners for risk in winner.risk)),
        prompt=_join_unique("\n", (winner.prompt for winner in winners)),
        title=next((winner.title for winner in winners if winner.title), ""),
        suggested_rule=_join_unique("\n", (winner.suggested_rule for winner in winners)),
        advice=_join_unique(" ", (winner.advice for winner in winners)),
        scope=min((winner.scope for winner in winners), key=APPROVAL_SCOPES.index),
        ask="after" if all(winner.ask == "after" for winner in winners) else "before",
        answer_within_seconds=min(
            (winner.answer_within_seconds for winner in winners if winner.answer_within_seconds is not None),
            default=None,
        ),
        approver="client" if all(winner.approver == "client" for winner in winners) else "person",
    )
    arguments = {winner.target_arg for winner in winners}
    if len(arguments) == 1:
        return merged
    reason = f"The rules want different arguments from a person: {', '.join(sorted(arguments))}."
    return msgspec.structs.replace(merged, verdict=Verdict.DENY, reason=reason, target_arg="", scope="once")


def deny_on_condition_error(decision: Decision, problem: str) -> Decision:
    """Return the deny of a rule whose condition failed."""
    reason = f"The condition of rule {decision.rule_ids[0]} {problem}, so the call is refused."
    return msgspec.structs.replace(decision, verdict=Verdict.DENY, reason=reason, target_arg="", scope="once")


def _join_unique(separator: str, texts: Iterable[str]) -> str:
    return separator.join(dict.fromkeys(filter(None, texts)))


_MAX_RULES_NAMED = 5
_READ_RISKS = frozenset({Risk.READ})
#: Modes in which the paths of a call decide.
_MODES_BY_PATH = (PermissionMode.ACCEPT_EDITS, PermissionMode.CONTAINED)


class PartEvaluation(msgspec.Struct, frozen=True):
    """One part of a call, and the decisions about it."""

    part: CallPart
    #: By every matching rule, and by the mode where it denies.
    rule_decisions: tuple[Decision, ...]
    decision: Decision


class PolicyDefault(msgspec.Struct, frozen=True):
    """The decision where no rule matches, the policy digest for its decisions, and the effects it declares."""

    default: DefaultVerdict
    digest: str
    effects: tuple[EffectDeclaration, ...] = ()
    #: Commands reach the hosts of egress rules and no other.
    has_egress: bool = False


class ToolPlan:
    """The precomputed evaluation of calls of one tool in one mode."""

    def __init__(
        self,
        tool: ToolDefinition,
        mode: PermissionMode,
        rules: Sequence[CompiledRule],
        resources: Resources,
        fallback: PolicyDefault,
    ) -> None:
        self.tool, self._mode, self._resources = tool, mode, resources
        self._default: DefaultVerdict = fallback.default
        self._digest = fallback.digest
        self._has_egress = fallback.has_egress
        digest = fallback.digest
        conditional = [rule for rule in rules if rule.is_conditional]
        self._decisions = {rule.id: rule.make_decision(tool, digest) for rule in rules}
        self._unconditional = tuple(self._decisions[rule.id] for rule in rules if not rule.is_conditional)
        self._index = RuleIndex(conditional)
        self._needs_arguments = bool(resources) or any(rule.arguments for rule in conditional)
        self._resource_rules = [rule for rule in conditional if rule.has_resource_conditions and rule.is_wide]
        self._rules_by_program = _group_by_program(self._resource_rules)
        effects = [each for each in fallback.effects if names_tool(each.tools, tool)]
        self.effect_rule = _merge_effects(effects) if effects else None
        #: The decision, where it does not depend on what the call would do.
        self.constant_decision = self._find_constant_decision() if not conditional else None
        if self.constant_decision is not None:
            self.constant_decision = self.with_effect_rule(self.constant_decision)

    def with_effect_rule(self, decision: Decision) -> Decision:
        """Return the decision with what the policy says about the effect of the tool."""
        return decision if self.effect_rule is None else msgspec.structs.replace(decision, effect_rule=self.effect_rule)

    def evaluate_parts(self, event: PolicyEvent, now: Callable[[], int]) -> list[PartEvaluation]:
        """Evaluate every part of a call separately."""
        arguments = event.arguments if self._needs_arguments else {}
        conditions = _ConditionCache(event, now)
        found = list[PartEvaluation]()
        for part in extract_call_parts(event, self._resources, arguments):
            if not part.is_hidden:
                found.append(self._evaluate_part(part, arguments, conditions))
            elif decisions := [
                each for each in self._decide_by_rules(part, arguments, conditions) if each.verdict is not Verdict.ALLOW
            ]:
                # What another command may start is named only where a rule refuses it or asks about it.
                found.append(PartEvaluation(part, tuple(decisions), merge_decisions(decisions)))
        return found

    def _evaluate_part(self, part: CallPart, arguments: JsonObject, conditions: "_ConditionCache") -> PartEvaluation:
        decisions = [*self._unconditional, *self._decide_by_rules(part, arguments, conditions)]
        refusal = deny_by_mode(self._mode, part.risk)
        if refusal is not None:
            decisions.append(self._with_digest(refusal))
        return PartEvaluation(part, tuple(decisions), self._decide(part, decisions))

    def _decide_by_rules(self, part: CallPart, arguments: JsonObject, conditions: "_ConditionCache") -> list[Decision]:
        """Return what rules about paths, commands, hosts and arguments say."""
        decisions = list[Decision]()
        for rule in self._index.find_candidates(part, arguments):
            if _matches(rule, part, arguments):
                decisions += conditions.decide(rule, self._decisions[rule.id])
        doubtful = self._resource_rules if part.opaque else self._find_mentioned_rules(part)
        return decisions + self._decide_uncertain(doubtful, arguments, conditions) if doubtful else decisions

    def _decide(self, part: CallPart, decisions: list[Decision]) -> Decision:
        """Decide about a part. Only an allow loosens: without one, rules can only tighten the default."""
        if any(each.verdict is Verdict.ALLOW for each in decisions):
            return merge_decisions(decisions)
        default = self._with_digest(
            decide_by_default(
                self._default, self._mode, part, contained=self.tool.contained, has_egress=self._has_egress
            )
        )
        if default.verdict is Verdict.ASK and self.tool.trial is not None:
            default = msgspec.structs.replace(default, ask="after")
        return pick_strictest((merge_decisions(decisions), default)) if decisions else default

    def _with_digest(self, decision: Decision) -> Decision:
        """Return a decision of no rule, in the name of the policy."""
        return msgspec.structs.replace(decision, policy_digest=self._digest) if self._digest else decision

    def _find_constant_decision(self) -> Decision | None:
        part = CallPart(risk=self.tool.risk)
        depends = any(kind == "command" for _, kind in self._resources) or self._mode in _MODES_BY_PATH
        if depends and not (
            self._unconditional and (self._mode is not PermissionMode.READ_ONLY or self.tool.risk <= _READ_RISKS)
        ):
            return None
        decision = self._evaluate_part(part, {}, _ConditionCache(None, int)).decision
        # A question names what the call would touch, and the rule that would do instead.
        asked_alike = bool(self._unconditional) and not self._resources
        return decision if decision.verdict not in QUESTION_VERDICTS or asked_alike else None

    def _find_mentioned_rules(self, part: CallPart) -> list[CompiledRule]:
        """Find rules about a command whose words all occur in those of another, which may start it."""
        if not self._rules_by_program or part.command is None or part.risk <= _READ_RISKS:
            return []
        words = find_inner_words(part.command)
        rules = {
            rule.id: rule
            for word in words
            for rule in self._rules_by_program.get(word, ())
            if rule.is_mentioned_in(words)
        }
        return list(rules.values())

    def _decide_uncertain(
        self, rules: Sequence[CompiledRule], arguments: JsonObject, conditions: "_ConditionCache"
    ) -> list[Decision]:
        """Decide about something uncertain: any of these rules might apply."""
        matches = [
            (rule, decision)
            for rule in rules
            if rule.matches_arguments(arguments)
            for decision in conditions.decide(rule, self._decisions[rule.id])
        ]
        if not matches:
            return []
        names = [rule.id for rule, _ in matches[:_MAX_RULES_NAMED]]
        more = f" and {len(matches) - _MAX_RULES_NAMED} more" if len(matches) > _MAX_RULES_NAMED else ""
        layers = dict.fromkeys(decision.layer for _, decision in matches)
        doubt = Decision(
            verdict=Verdict.ASK,
            reason=f"It cannot be shown that this is not what {', '.join(names)}{more} is about.",
            rule_ids=tuple(names),
            layer=", ".join(layers),
            risk=tuple(sorted(self.tool.risk)),
            policy_digest=self._digest,
            scope="run",
        )
        return [doubt]


def _merge_effects(effects: Sequence[EffectDeclaration]) -> EffectRule:
    """Return the first key, the strictest `repeat` and the longest time."""
    windows = [each.repeat_after_seconds for each in effects]
    return EffectRule(
        key=next((each.key for each in effects if each.key), ""),
        repeat=pick_strictest_repeat(each.repeat for each in effects),
        repeat_after_seconds=None if None in windows else max(seconds for seconds in windows if seconds is not None),
    )


def _group_by_program(rules: Sequence[CompiledRule]) -> dict[str, list[CompiledRule]]:
    found: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        for pattern in rule.commands:
            found.setdefault(normalize_program_name(pattern.words[0]), []).append(rule)
    return found


class _ConditionCache:
    """The conditions that do not depend on the part of the call, each asked at most once."""

    def __init__(self, event: PolicyEvent | None, now: Callable[[], int]) -> None:
        self._event = event
        self._now = now
        self._decisions: dict[str, tuple[Decision, ...]] = {}

    def decide(self, rule: CompiledRule, decision: Decision) -> tuple[Decision, ...]:
        """Return what the rule says: nothing when it has ended or its condition does not hold."""
        if rule.id not in self._decisions:
            self._decisions[rule.id] = self._evaluate(rule, decision)
        return self._decisions[rule.id]

    def _evaluate(self, rule: CompiledRule, decision: Decision) -> tuple[Decision, ...]:
        assert self._event is not None  # noqa: S101 - without an event there are no conditional rules
        ends_at, condition = rule.rule.expires_at, rule.rule.when
        if ends_at and self._now() >= ends_at:
            return ()
        if not rule.matches_situation(self._event.situation):
            return ()
        holds: Any = True
        if condition is not None:
            try:
                holds = condition(self._event)
            except Exception as error:
                return (deny_on_condition_error(decision, f"raised {type(error).__name__}"),)
        if holds is False:
            return ()
        return (
            (decision,) if holds is True else (deny_on_condition_error(decision, f"returned a {type(holds).__name__}"),)
        )


def _matches(rule: CompiledRule, part: CallPart, arguments: JsonObject) -> bool:
    """Return True if the conditions on arguments hold. Paths were matched by the index."""
    if rule.commands and (part.command is None or not rule.matches_command(part.command)):
        return False
    if not rule.is_wide and rule.has_resource_conditions and not _can_allow(rule, part):
        return False
    if rule.hosts and not rule.matches_hosts(part):
        return False
    return rule.matches_arguments(arguments)


def _can_allow(rule: CompiledRule, part: CallPart) -> bool:
    """Return True if a rule can allow a part: one about paths or hosts does not allow arbitrary commands there."""
    return not part.opaque and (bool(rule.commands) or part.command is None or part.risk <= _READ_RISKS)
