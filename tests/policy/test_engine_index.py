"""The index is only faster: it finds what asking every rule, one by one, would find."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given

from interlock.domain.tool import CallContext, PermissionMode, Risk
from interlock.policy.engine.call_parts import CallPart
from interlock.policy.engine.compiled_rule import CompiledRule, compile_rule
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.paths import PathAccess
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.interface import PolicyEvent
from interlock.policy.patterns import fold_text
from tests.each import each

from .rule_strategies import NOW, WORKSPACE, events, rule_lists


def _texts(path: PathAccess, *, wide: bool) -> list[list[str]]:
    texts = [list(place.match_texts) for place in path.targets]
    return [[*each, *map(fold_text, each)] for each in texts] if wide else texts


def _is_meant(rule: CompiledRule, path: PathAccess) -> bool:
    return rule.rule.access is None or (rule.rule.access == "write") == path.writes


def _fits_place(rule: CompiledRule, texts: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, text, re.DOTALL) for pattern in rule.paths for text in texts)


def _paths_fit(rule: CompiledRule, subject: CallPart) -> bool:
    if not rule.paths:
        return True
    fits = [
        [_is_meant(rule, path) and _fits_place(rule, texts) for texts in _texts(path, wide=rule.is_wide)]
        for path in subject.paths
    ]
    if rule.is_wide:
        return any(any(places) for places in fits)
    return bool(fits) and all(places and all(places) for places in fits)


def _fits(rule: CompiledRule, event: PolicyEvent, subject: CallPart) -> bool:
    if not rule.matches_tool(event.tool, event.situation) or not rule.matches_situation(event.situation):
        return False
    if rule.rule.expires_at and rule.rule.expires_at <= NOW:
        return False
    if rule.commands and (subject.command is None or not rule.matches_command(subject.command)):
        return False
    does_more = subject.command is not None and not rule.commands and not subject.risk <= {Risk.READ}
    if not rule.is_wide and rule.has_resource_conditions and (subject.opaque or does_more):
        return False
    if rule.hosts and not rule.matches_hosts(subject):
        return False
    return _paths_fit(rule, subject) and rule.matches_arguments(event.arguments)


def _holds(rule: CompiledRule, event: PolicyEvent) -> bool:
    """A condition that fails makes its rule speak, too."""
    try:
        return rule.rule.when is None or rule.rule.when(event) is not False
    except Exception:
        return True


def reference(made: Sequence[Rule], event: PolicyEvent, subject: CallPart) -> Iterator[str]:
    for rule in map(compile_rule, made):
        if _fits(rule, event, subject) and _holds(rule, event):
            yield rule.id


@given(rule_lists(max_size=8), events())
def test_the_index_finds_what_asking_every_rule_finds(made: list[Rule], event: PolicyEvent) -> None:
    for part in RulePolicy(made, now=lambda: NOW).evaluate_parts(event):
        said = [each for each in part.rule_decisions if each.rule_ids != ("mode:read_only",)]
        doubts = [each for each in said if each.reason.startswith("It cannot be shown")]
        spoke = {rule_id for each in said if each not in doubts for rule_id in each.rule_ids}
        assert spoke == set(reference(made, event, part.part))
        assert not doubts or part.part.opaque or part.part.command is not None


@each(
    ("fields", "script"),
    [
        ({"command": "rm"}, "RM -rf x"),
        ({"command": "rm"}, "/BIN/Rm x"),
        ({"command": "rm"}, "sudo Rm x"),
        ({"command": "/bin/rm"}, "rm x"),
        ({"command": ["git push", "rm"]}, "rm x"),
        ({"command": "* x"}, "rm x"),
        ({"command": "sudo"}, "sudo rm x"),
        ({"command": "rm", "path": "x"}, "rm ./x"),
        ({"command": "curl", "host": "*.evil.example"}, "curl https://a.evil.example"),
        ({"host": "evil.example"}, "curl https://EVIL.example."),
        ({"host": ["docs.example", "*"]}, "curl https://evil.example"),
    ],
)
def test_a_rule_is_found_among_a_thousand_others_however_the_call_is_written(
    fields: dict[str, Any], script: str
) -> None:
    others = [Rule(id=f"other {at}", verdict="deny", command=f"tool{at}", host=f"h{at}.example") for at in range(1_000)]
    situation = CallContext(run_id="run_1", mode=PermissionMode.TRUSTED, workspace=WORKSPACE)
    event = example_event("bash", {"command": script}, situation)

    decision = RulePolicy([*others, Rule(id="this", verdict="deny", **fields)]).evaluate(event)

    assert (decision.verdict, decision.rule_ids) == ("deny", ("this",))
