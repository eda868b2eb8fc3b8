"""What holds for every set of rules."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from interlock.domain.decision import Verdict
from interlock.domain.tool import Origin, Risk, Situation, ToolDefinition
from interlock.policy.interface import PolicyEvent
from interlock.policy.rules import Default, Rule, RulePolicy
from interlock.registry.decorator import tool


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def handler() -> None: ...


STRICTNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}


@cache
def _tool(name: str, risk: frozenset[Risk], origin: Origin) -> ToolDefinition:
    return tool(handler, name=name, risk=risk, origin=origin, args_model=Anything)


def _event(definition: ToolDefinition, count: int) -> PolicyEvent:
    situation = Situation(run_id="run_1")
    return PolicyEvent("call_1", definition, definition.args_model.model_validate({"count": count}), situation)


tools = st.builds(
    _tool,
    st.sampled_from(["bash", "read_file", "read_dir"]),
    st.frozensets(st.sampled_from(Risk)),
    st.sampled_from(["local", "mcp"]),
)
events = st.builds(_event, tools, st.integers(0, 3))


def _over(limit: int) -> Callable[[PolicyEvent], bool]:
    return lambda event: event.arguments["count"] > limit


def _broken(event: PolicyEvent) -> bool:
    raise RuntimeError


patterns = st.sampled_from(["*", "read_*", "bash", ["bash", "read_dir"]])


@st.composite
def rules(draw: st.DrawFn, number: int = 0, verdict: Verdict | None = None) -> Rule:
    said = verdict or draw(st.sampled_from(Verdict))
    return Rule(
        id=f"rule {number}",
        verdict=said,
        tools=draw(patterns),
        risk=draw(st.none() | st.frozensets(st.sampled_from(Risk), min_size=1)),
        origin=draw(st.sampled_from([None, "local", "mcp"])),
        when=draw(st.none() | st.integers(0, 3).map(_over) | st.just(_broken)),
        reason=draw(st.sampled_from(["", "Because.", "So."])),
        layer=draw(st.sampled_from(["project rule", "user rule", "enterprise policy"])),
        target_arg=draw(st.sampled_from(["path", "mode"])) if said is Verdict.REQUEST_INPUT else "",
    )


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    return [draw(rules(number)) for number in range(1, draw(st.integers(1, 6)))]


defaults = st.sampled_from(["risk", "allow", "ask", "deny"])


@pytest.mark.requirement("D04", "R215")
@settings(deadline=None)
@given(rule_lists(), rules(), events, defaults)
def test_adding_a_rule_never_loosens_what_rules_decided(
    before: list[Rule], added: Rule, event: PolicyEvent, default: Default
) -> None:
    decided = RulePolicy(before, default).evaluate(event)
    then = RulePolicy([*before, added], default).evaluate(event)

    if decided.rule_ids:
        assert STRICTNESS[then.verdict] >= STRICTNESS[decided.verdict]
    elif not then.rule_ids:
        assert then == decided


@pytest.mark.requirement("D04", "R215")
@settings(deadline=None)
@given(rule_lists(), rules(verdict=Verdict.DENY), events, defaults)
def test_adding_a_deny_never_loosens_anything(
    before: list[Rule], deny: Rule, event: PolicyEvent, default: Default
) -> None:
    decided = RulePolicy(before, default).evaluate(event)
    then = RulePolicy([*before, deny], default).evaluate(event)

    assert STRICTNESS[then.verdict] >= STRICTNESS[decided.verdict]


@pytest.mark.requirement("R215")
@settings(deadline=None)
@given(rule_lists(), events, defaults)
def test_a_deny_that_matches_always_wins_and_is_named(others: list[Rule], event: PolicyEvent, default: Default) -> None:
    decided = RulePolicy([*others, Rule(id="no", verdict="deny")], default).evaluate(event)

    assert decided.verdict is Verdict.DENY
    assert "no" in decided.rule_ids


@pytest.mark.requirement("D04")
@settings(deadline=None)
@given(rule_lists().flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))), events, defaults)
def test_the_order_of_rules_changes_no_word_of_the_decision(
    orders: tuple[list[Rule], list[Rule]], event: PolicyEvent, default: Default
) -> None:
    one, other = (RulePolicy(order, default) for order in orders)

    assert one.digest == other.digest
    assert one.evaluate(event) == other.evaluate(event)


@settings(deadline=None)
@given(rule_lists(), st.lists(events, max_size=4), events)
def test_what_was_decided_before_changes_nothing(
    made: list[Rule], earlier: list[PolicyEvent], event: PolicyEvent
) -> None:
    used = RulePolicy(made)
    for past in earlier:
        used.evaluate(past)

    assert used.evaluate(event) == RulePolicy(made).evaluate(event)


@settings(deadline=None)
@given(rule_lists(), events)
def test_a_decision_is_never_looser_than_any_rule_alone(made: list[Rule], event: PolicyEvent) -> None:
    alone = [decided for rule in made if (decided := RulePolicy([rule]).evaluate(event)).rule_ids]

    together = RulePolicy(made).evaluate(event)

    assert all(STRICTNESS[together.verdict] >= STRICTNESS[decided.verdict] for decided in alone)
