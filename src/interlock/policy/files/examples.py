"""The examples of a rule, tested against that rule alone. A rule that fails its examples is rejected."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from ...domain.decision import Verdict
from ...domain.errors import ConfigurationError
from ...domain.tool import CallContext, JsonObject, PermissionMode, ResourceKind, ToolOrigin
from ..engine.example_event import TOOL_DEFAULTS, ToolDeclaration, example_event
from ..engine.rule import ResourceDeclaration
from ..engine.rule_policy import RulePolicy
from ..interface import PolicyEvent
from .document import Example, ExampleItem
from .layer_compiler import LocatedRule
from .problems import PolicyProblem, PolicySource
from .shorthand import PatternKind, parse_shorthand, split_shorthand

#: Examples are about no folder that exists, so nothing on a disk decides whether they hold.
_WORKSPACE = "/workspace"


def check_examples(
    source: PolicySource,
    located_rules: Sequence[LocatedRule],
    resources: Sequence[ResourceDeclaration],
    workspace: str = "",
) -> list[PolicyProblem]:
    """Return the problems of rules that fail their examples."""
    return [
        source.make_problem((*each.location, key, index), reason)
        for each in located_rules
        for key, index, reason in _find_failures(each, resources, workspace or _WORKSPACE)
    ]


def read_example(
    example: str | Example, resources: Sequence[ResourceDeclaration] = (), workspace: str = _WORKSPACE
) -> PolicyEvent:
    """Return the call of an example. Raise `ConfigurationError` when it describes none."""
    given = _parse_shorthand_example(example) if isinstance(example, str) else example
    origin, server = _find_origin(given)
    resource_kinds = _find_resource_kinds(given.tool, resources)
    arguments: JsonObject = {**given.arguments}
    kinds: tuple[PatternKind, ...] = ("path", "command", "host")
    for kind in kinds:
        if (value := getattr(given, kind)) is not None:
            name = next((name for name, meaning in resource_kinds.items() if meaning == kind), kind)
            resource_kinds[name] = kind
            arguments = _set_nested(arguments, name.split("."), value)
    situation = CallContext(
        run_id="run_example",
        agent=given.agent or "",
        mode=PermissionMode(given.mode or PermissionMode.DEFAULT),
        interactive=bool(given.interactive),
        workspace=workspace,
    )
    declared: ToolDeclaration = {"origin": origin, "source": server, "resources": resource_kinds}
    if given.risk is not None:
        declared["risk"] = given.risk
    return example_event(given.tool, arguments, situation, **declared)


def _find_failures(
    located: LocatedRule, resources: Sequence[ResourceDeclaration], workspace: str
) -> Iterator[tuple[str, int, str]]:
    rule, entry = located.rule, located.entry
    if not entry.matches and not entry.does_not_match:
        return
    # At the beginning of time no rule has ended.
    policy = RulePolicy([rule], resources=resources, now=lambda: 0)
    for key, expected in (("matches", True), ("does_not_match", False)):
        for index, example in enumerate(cast(Sequence[ExampleItem], getattr(entry, key))):
            try:
                matched = _is_matched(policy, read_example(example, resources, workspace))
            except ConfigurationError as error:
                yield key, index, f"this example stands for no call: {error}"
                continue
            if matched != expected:
                said = "would ask for a value" if rule.verdict == "request_input" else f"would {rule.verdict}"
                meant = "match, and the rule {} says nothing about it" if expected else "not match, and the rule {} {}"
                yield key, index, f"this example should {meant.format(rule.id, said)}"


def _is_matched(policy: RulePolicy, event: PolicyEvent) -> bool:
    """Return True if the rule decides the call: an allow needs all parts, a deny or ask only one."""
    rule = policy.rules[0]
    if rule.verdict != Verdict.ALLOW:
        return bool(policy.find_matching_rules(event))
    return all(
        any(said.verdict is Verdict.ALLOW and rule.id in said.rule_ids for said in part.rule_decisions)
        for part in policy.evaluate_parts(event)
    )


def _parse_shorthand_example(text: str) -> Example:
    parts = split_shorthand(text)
    family = parts.family
    given: dict[str, Any] = {"tool": family.tools[0] if family is not None else parts.name}
    if parts.kind is not None:
        given[parts.kind] = parts.pattern
    return Example.model_validate(given)


def _find_origin(example: Example) -> tuple[ToolOrigin, str]:
    if example.origin is not None or example.server is not None:
        return example.origin or "local", example.server or ""
    if not example.tool.startswith("mcp__"):
        return "local", ""
    named = parse_shorthand(example.tool)
    return named.origin or "local", named.server or ""


def _find_resource_kinds(tool: str, resources: Sequence[ResourceDeclaration]) -> dict[str, ResourceKind]:
    family = TOOL_DEFAULTS.get(tool)
    meanings: dict[str, ResourceKind] = {**family.resources} if family is not None else {}
    for declared in resources:
        if fnmatchcase(tool, declared.tools):
            meanings |= declared.arguments
    return meanings


def _set_nested(arguments: JsonObject, names: list[str], value: str) -> JsonObject:
    first, *rest = names
    if not rest:
        return {**arguments, first: value}
    inner = arguments.get(first)
    return {**arguments, first: _set_nested(cast(JsonObject, inner) if isinstance(inner, dict) else {}, rest, value)}
