"""The examples of a rule, run against that rule alone. A rule that does not do what its examples say is refused."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from ...domain.decision import Verdict
from ...domain.errors import ConfigurationError
from ...domain.tool import JsonObject, Mode, Origin, ResourceKind, Situation
from ..analysis.example_event import FAMILIES, Declared, hypothetical
from ..engine.rule import ResourceDeclaration, Rule
from ..engine.rule_policy import RulePolicy
from ..interface import PolicyEvent
from .compile import PlacedRule
from .document import Example, ExampleItem
from .places import Problem, Source
from .shorthand import PatternKind, parse_shorthand, take_apart

#: Examples are about no folder that exists, so nothing on a disk decides whether they hold.
_WORKSPACE = "/workspace"


def check_examples(
    source: Source, placed: Sequence[PlacedRule], resources: Sequence[ResourceDeclaration], workspace: str = ""
) -> list[Problem]:
    """What the rules do to their examples and should not."""
    return [
        source.problem((*each.location, key, index), reason)
        for each in placed
        for key, index, reason in _failing(each, resources, workspace or _WORKSPACE)
    ]


def example_event(
    example: str | Example, resources: Sequence[ResourceDeclaration] = (), workspace: str = _WORKSPACE
) -> PolicyEvent:
    """The call that an example stands for. `ConfigurationError` when it stands for none."""
    given = _from_shorthand(example) if isinstance(example, str) else example
    origin, server = _where_from(given)
    meanings = _meanings(given.tool, resources)
    arguments: JsonObject = {**given.arguments}
    named: list[tuple[PatternKind, str | None]] = [
        ("path", given.path),
        ("command", given.command),
        ("host", given.host),
    ]
    for kind, value in named:
        if value is not None:
            name = next((name for name, meaning in meanings.items() if meaning == kind), kind)
            meanings[name] = kind
            arguments = _with(arguments, name.split("."), value)
    situation = Situation(
        run_id="run_example",
        agent=given.agent or "",
        mode=Mode(given.mode or Mode.DEFAULT),
        interactive=bool(given.interactive),
        workspace=workspace,
    )
    declared: Declared = {"origin": origin, "source": server, "resources": meanings}
    if given.risk is not None:
        declared["risk"] = given.risk
    return hypothetical(given.tool, arguments, situation, **declared)


def _failing(
    placed: PlacedRule, resources: Sequence[ResourceDeclaration], workspace: str
) -> Iterator[tuple[str, int, str]]:
    entry = placed.entry
    if not entry.matches and not entry.does_not_match:
        return
    # At the beginning of time no rule has ended.
    policy = RulePolicy([placed.rule], resources=resources, now=lambda: 0)
    lists: list[tuple[str, bool, Sequence[ExampleItem]]] = [
        ("matches", True, entry.matches),
        ("does_not_match", False, entry.does_not_match),
    ]
    for key, expected, examples in lists:
        for index, example in enumerate(examples):
            try:
                matched = _matched(policy, example_event(example, resources, workspace))
            except ConfigurationError as error:
                yield key, index, f"this example stands for no call: {error}"
                continue
            if matched != expected:
                yield key, index, _what_happened(placed.rule, expected)


def _matched(policy: RulePolicy, event: PolicyEvent) -> bool:
    """To allow a call is to allow all its parts; one part is enough to refuse it, or to ask."""
    rule = policy.rules[0]
    if rule.verdict != Verdict.ALLOW:
        return bool(policy.matching(event))
    return all(
        any(said.verdict is Verdict.ALLOW and rule.id in said.rule_ids for said in part.said)
        for part in policy.judge(event)
    )


def _what_happened(rule: Rule, expected: bool) -> str:
    said = f"would {rule.verdict}" if rule.verdict != "request_input" else "would ask for a value"
    if expected:
        return f"this example should match, and the rule {rule.id} says nothing about it"
    return f"this example should not match, and the rule {rule.id} {said}"


def _from_shorthand(text: str) -> Example:
    parts = take_apart(text)
    family = parts.family
    given: dict[str, Any] = {"tool": family.tools[0] if family is not None else parts.name}
    if parts.kind is not None:
        given[parts.kind] = parts.pattern
    return Example.model_validate(given)


def _where_from(example: Example) -> tuple[Origin, str]:
    if example.origin is not None or example.server is not None:
        return example.origin or "local", example.server or ""
    if not example.tool.startswith("mcp__"):
        return "local", ""
    named = parse_shorthand(example.tool)
    return named.origin or "local", named.server or ""


def _meanings(tool: str, resources: Sequence[ResourceDeclaration]) -> dict[str, ResourceKind]:
    family = FAMILIES.get(tool)
    meanings: dict[str, ResourceKind] = {**family.resources} if family is not None else {}
    for declared in resources:
        if fnmatchcase(tool, declared.tools):
            meanings |= declared.arguments
    return meanings


def _with(arguments: JsonObject, names: list[str], value: str) -> JsonObject:
    first, *rest = names
    if not rest:
        return {**arguments, first: value}
    inner = arguments.get(first)
    return {**arguments, first: _with(cast(JsonObject, inner) if isinstance(inner, dict) else {}, rest, value)}
