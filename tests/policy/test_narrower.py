"""A rule that is narrower than another allows nothing that the other does not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.decision import Verdict
from interlock.policy.engine.rule import ArgumentGlob, ArgumentIs, CommandPattern, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.files.rule_comparison import find_wider_condition
from interlock.policy.interface import PolicyEvent
from tests.each import each

from .rule_strategies import CONDITIONS, NOW, events, interactive, rules

ALLOWING = (Verdict.ALLOW,)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Rule, Rule]:
    """A rule, and one with some of its conditions replaced or more of them."""
    suggested = draw(rules(verdicts=ALLOWING))
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=3, unique=True)):
        fields |= draw(CONDITIONS[name])
    return msgspec.structs.replace(suggested, **fields), suggested


def allows(rule: Rule, event: PolicyEvent) -> bool:
    return RulePolicy([rule], "deny", now=lambda: NOW).evaluate(event).verdict is Verdict.ALLOW


@pytest.mark.requirement("P22")
@given(pairs() | st.tuples(rules(verdicts=ALLOWING), rules(verdicts=ALLOWING)), st.lists(events(), max_size=8))
def test_narrower_rule_allows_nothing_more(pair: tuple[Rule, Rule], calls: list[PolicyEvent]) -> None:
    candidate, suggested = pair

    if not find_wider_condition(candidate, suggested):
        assert [event for event in calls if allows(candidate, event) and not allows(suggested, event)] == []


def rule(**fields: Any) -> Rule:
    return Rule(id="r", verdict="allow", **fields)


EXACT = rule(tools="bash", command=[CommandPattern(("npm", "test"), exact=True)])
PREFIX = rule(tools="bash", command="npm run")


@each(
    ("candidate", "suggested"),
    [
        (EXACT, EXACT),
        (rule(tools="bash", command=EXACT.command, agent="coder", mode="default", expires_at=5), EXACT),
        (rule(tools="bash", command="npm run build"), PREFIX),
        (rule(tools="bash", command=[CommandPattern(("npm", "run"), exact=True)]), PREFIX),
        (rule(tools="read_file"), rule(tools="*_file")),
        (rule(host=["docs.example", "*.a.example"]), rule(host=["docs.example", "*.example"])),
        (rule(arguments={"n": ArgumentIs(1.0), "m": ArgumentIs(2)}), rule(arguments={"n": ArgumentIs(1)})),
        (rule(risk="read"), rule(risk={"read", "write"})),
        (rule(path="src/*", access="read"), rule(path=["src/*", "docs/*"])),
        (rule(expires_at=4), rule(expires_at=5)),
    ],
)
def test_narrowing_is_shown(candidate: Rule, suggested: Rule) -> None:
    assert find_wider_condition(candidate, suggested) == ""


@pytest.mark.requirement("P22")
@each(
    ("candidate", "suggested", "key"),
    [
        (rule(), EXACT, "tools"),
        (Rule(id="r", verdict="deny", tools="bash"), rule(tools="bash"), "decision"),
        (rule(tools="bash"), EXACT, "command"),
        (rule(tools="bash", command="npm test"), EXACT, "command"),
        (rule(tools="bash", command=[CommandPattern(("npm", "*"), exact=True)]), EXACT, "command"),
        (rule(tools="bash", command="npm"), PREFIX, "command"),
        (rule(tools="*_file"), rule(tools=["read_file", "edit_file"]), "tools"),
        (rule(path="src/*", command="rm"), rule(path="src/*"), "command"),
        (rule(path="**"), rule(path="src/*"), "path"),
        (rule(path="src/*"), rule(path="src/*", access="read"), "access"),
        (rule(host="*"), rule(host="*.example"), "host"),
        (rule(host="badexample"), rule(host="*.example"), "host"),
        (rule(arguments={"n": ArgumentGlob("*")}), rule(arguments={"n": ArgumentGlob("a*")}), "arguments"),
        (rule(), rule(arguments={"n": ArgumentIs(1)}), "arguments"),
        (rule(when=interactive), rule(when=interactive), "when"),
        (rule(when_source="true"), rule(when=interactive, when_source="false"), "when"),
        (rule(), rule(expires_at=5), "expires"),
        (rule(expires_at=6), rule(expires_at=5), "expires"),
        (rule(agent="co*"), rule(agent="coder"), "agent"),
        (rule(), rule(mode="default"), "mode"),
        (rule(), rule(interactive=True), "interactive"),
        (rule(), rule(origin="local"), "origin"),
        (rule(), rule(server="web"), "server"),
        (rule(risk={"read", "write"}), rule(risk="read"), "risk"),
    ],
)
def test_widening_is_named(candidate: Rule, suggested: Rule, key: str) -> None:
    assert find_wider_condition(candidate, suggested) == key
