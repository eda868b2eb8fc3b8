"""What holds for every set of rules."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.decision import Decision, Verdict
from interlock.policy.engine.rule import DefaultVerdict, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.interface import PolicyEvent

from .rule_strategies import NOW, any_events, defaults, events, rule_lists, rules, strictness

RESTRICTING = (Verdict.DENY, Verdict.ASK, Verdict.REQUEST_INPUT)


def policy(made: Sequence[Rule], default: DefaultVerdict = "risk") -> RulePolicy:
    return RulePolicy(made, default, now=lambda: NOW)


def by_rule(decision: Decision) -> bool:
    """Was it decided by rules, and not by the mode or the default?"""
    return any(rule_id.startswith("rule ") for rule_id in decision.rule_ids)


@pytest.mark.requirement("D04", "R208", "R215")
@given(rule_lists(), rules(verdicts=RESTRICTING), events(), defaults)
def test_adding_a_rule_that_refuses_or_asks_never_loosens_anything(
    before: list[Rule], added: Rule, event: PolicyEvent, default: DefaultVerdict
) -> None:
    decided = policy(before, default).evaluate(event)
    then = policy([*before, added], default).evaluate(event)

    assert strictness(then) >= strictness(decided)


@pytest.mark.requirement("D04", "R215")
@given(rule_lists(), rules(verdicts=(Verdict.ALLOW,)), events(), defaults)
def test_adding_an_allow_never_changes_what_a_rule_refused_or_asked(
    before: list[Rule], allow: Rule, event: PolicyEvent, default: DefaultVerdict
) -> None:
    decided = policy(before, default).evaluate(event)
    then = policy([*before, allow], default).evaluate(event)

    if decided.verdict is not Verdict.ALLOW and by_rule(decided):
        assert strictness(then) >= strictness(decided)
        assert set(decided.rule_ids) <= set(then.rule_ids) or strictness(then) > strictness(decided)


@pytest.mark.requirement("R215")
@given(rule_lists(), events(), defaults)
def test_a_deny_that_matches_always_wins_and_is_named(
    others: list[Rule], event: PolicyEvent, default: DefaultVerdict
) -> None:
    decided = policy([*others, Rule(id="no", verdict="deny")], default).evaluate(event)

    assert decided.verdict is Verdict.DENY
    assert "no" in decided.rule_ids


@pytest.mark.requirement("D04")
@given(rule_lists().flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))), events(), defaults)
def test_the_order_of_rules_changes_no_word_of_the_decision(
    orders: tuple[list[Rule], list[Rule]], event: PolicyEvent, default: DefaultVerdict
) -> None:
    one, other = (policy(order, default) for order in orders)

    assert one.digest == other.digest
    assert one.evaluate(event) == other.evaluate(event)


@settings(deadline=None)
@given(rule_lists(), st.lists(events(), max_size=4), events())
def test_what_was_decided_before_changes_nothing(
    made: list[Rule], earlier: list[PolicyEvent], event: PolicyEvent
) -> None:
    used = policy(made)
    for past in earlier:
        used.evaluate(past)

    assert used.evaluate(event) == policy(made).evaluate(event)


@pytest.mark.requirement("D04")
@given(rule_lists(), events())
def test_a_decision_is_never_looser_than_any_rule_alone(made: list[Rule], event: PolicyEvent) -> None:
    alone = [decided for rule in made if by_rule(decided := policy([rule]).evaluate(event))]

    together = policy(made).evaluate(event)

    assert all(strictness(together) >= strictness(decided) for decided in alone)


@pytest.mark.requirement("R208")
@given(rule_lists(), events(), defaults)
def test_the_strictest_part_of_a_call_decides(made: list[Rule], event: PolicyEvent, default: DefaultVerdict) -> None:
    judging = policy(made, default)
    parts = [part.decision for part in judging.evaluate_parts(event)]

    decided = judging.evaluate(event)

    assert strictness(decided) >= max(map(strictness, parts))
    # More than that only where parts want different arguments from a person.
    wanted = {part.target_arg for part in parts if part.verdict is Verdict.REQUEST_INPUT}
    assert strictness(decided) == max(map(strictness, parts)) or len(wanted) > 1


@given(rule_lists(max_size=8), any_events(), defaults)
def test_any_arguments_at_all_get_a_decision(made: list[Rule], event: PolicyEvent, default: DefaultVerdict) -> None:
    judging = policy(made, default)

    decided = judging.evaluate(event)

    assert decided.verdict in Verdict
    assert decided.reason


@given(rule_lists(), events(), defaults)
def test_every_decision_names_its_policy_once_the_policy_says_anything(
    made: list[Rule], event: PolicyEvent, default: DefaultVerdict
) -> None:
    judging = policy([*made, Rule(id="rule 0", verdict="ask", tools="nobody")], default)

    assert judging.evaluate(event).policy_digest == judging.digest
