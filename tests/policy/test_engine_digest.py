"""The digest of a policy: the same for the same rules, another for any other."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.policy.engine.rule import (
    ArgumentGlob,
    ArgumentIs,
    ArgumentRegex,
    CommandPattern,
    ResourceDeclaration,
    Rule,
)
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.interface import PolicyEvent
from tests.each import each

from .rule_strategies import rule_lists


def first(event: PolicyEvent) -> bool:
    return True


def second(event: PolicyEvent) -> bool:
    return True


RULE = Rule(
    id="a",
    verdict="ask",
    tools=["bash", "run"],
    risk=["execute"],
    origin="local",
    server="web",
    arguments={"x": ArgumentIs(1)},
    path="src/**",
    access="read",
    command="git push",
    host="a.example",
    agent="coder",
    mode="default",
    interactive=True,
    when=first,
    when_source="",
    reason="Because.",
    expires_at=5,
)
OTHERS: dict[str, list[Any]] = {
    "id": ["b"],
    "verdict": ["deny", "allow"],
    "tools": ["*", ["bash"], "run"],
    "risk": [None, "read", ["execute", "read"]],
    "origin": [None, "mcp"],
    "server": [None, "web2", ["web", "x"]],
    "arguments": [
        {},
        {"x": ArgumentIs(2)},
        {"x": ArgumentIs("1")},
        {"y": ArgumentIs(1)},
        {"x": ArgumentGlob("1")},
        {"x": ArgumentRegex("1")},
        {"x": ArgumentIs(1), "y": ArgumentIs(1)},
    ],
    "path": [["src/**", "x"], "src/*"],
    "access": [None, "write"],
    "command": [None, "git pull", ["git push", "rm"], [CommandPattern(("git", "push"), exact=True)]],
    "host": [None, "b.example", "*.a.example"],
    "agent": [None, "cod*"],
    "workspace": ["/work", ["/work", "/other"]],
    "mode": [None, "trusted", ["default", "trusted"]],
    "interactive": [None, False],
    "when": [None, second],
    "when_source": ["event.x > 1"],
    "reason": ["", "So."],
    "layer": ["user rule"],
    "prompt": ["Sure?"],
    "title": ["Run {x}"],
    "suggested_rule": ["x"],
    "advice": ["Read."],
    "scope": ["once", "window", "rule"],
    "ask": ["after"],
    "answer_within_seconds": [1.0],
    "approver": ["client"],
    "expires_at": [0, 6],
}


def digest(*rules: Rule) -> str:
    return RulePolicy(rules).digest


def test_a_change_of_any_field_of_a_rule_changes_the_digest() -> None:
    changed = [
        digest(msgspec.structs.replace(RULE, **{name: value})) for name, values in OTHERS.items() for value in values
    ]
    changed.append(digest(msgspec.structs.replace(RULE, verdict="request_input", target_arg="x")))
    changed.append(digest(msgspec.structs.replace(RULE, verdict="request_input", target_arg="y")))

    assert {*OTHERS, "target_arg"} == {field.name for field in msgspec.structs.fields(Rule)}
    assert len({digest(RULE), *changed}) == 1 + len(changed)


def test_default_and_declarations_are_part_of_it() -> None:
    policies = [
        RulePolicy([RULE]),
        RulePolicy([RULE], "deny"),
        RulePolicy([RULE], resources=[ResourceDeclaration("t", {"a": "path"})]),
        RulePolicy([RULE], resources=[ResourceDeclaration("t", {"a": "host"})]),
        RulePolicy([RULE], resources=[ResourceDeclaration("u", {"a": "path"})]),
        RulePolicy([RULE], resources=[ResourceDeclaration("t", {"b": "path"})]),
        RulePolicy([]),
    ]

    assert len({policy.digest for policy in policies}) == len(policies)


@each(
    ("one", "other"),
    [
        ({"verdict": "ask"}, {"verdict": "request_approval"}),
        ({"tools": "bash"}, {"tools": ["bash"]}),
        ({"tools": ["a", "b"]}, {"tools": ("b", "a")}),
        ({"risk": {"read", "write"}}, {"risk": ["write", "read"]}),
        ({"path": {"a", "b", "c", "d"}}, {"path": {"d", "c", "b", "a"}}),
        ({"mode": {"default", "trusted"}}, {"mode": {"trusted", "default"}}),
        (
            {"arguments": {"a": ArgumentIs(1), "b": ArgumentIs(2)}},
            {"arguments": {"b": ArgumentIs(2), "a": ArgumentIs(1)}},
        ),
        (
            {"command": {CommandPattern(("a",)), CommandPattern(("b",))}},
            {"command": {CommandPattern(("b",)), CommandPattern(("a",))}},
        ),
    ],
)
def test_the_same_rule_in_other_words_has_the_same_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    base: dict[str, Any] = {"id": "a", "verdict": "ask"}

    assert digest(Rule(**{**base, **one})) == digest(Rule(**{**base, **other}))


@settings(deadline=None)
@given(rule_lists().flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))))
def test_equal_rules_have_equal_digests_in_any_order(orders: tuple[list[Rule], list[Rule]]) -> None:
    one, other = orders

    assert digest(*one) == digest(*other)
    assert digest(*one) != digest(*one, Rule(id="another", verdict="ask"))
