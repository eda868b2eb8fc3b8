"""Whoever made a run, or whom it acts for, does not decide its questions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.identity.permissions import FourEyes, RunOwnershipData, find_four_eyes_problem
from interlock.server.core.identity.principal import Principal, Role
from tests.each import each

ADMIN = Principal(name="user:ada", kind="person", roles=frozenset({Role.ADMIN, Role.OPERATOR}))
FOR_ADA = RunOwnershipData(agent="billing", requester="user:ada", created_by="key:bot")
BY_ADA = RunOwnershipData(agent="billing", requester="user:bob", created_by="user:ada")
OF_OTHERS = RunOwnershipData(agent="billing", requester="user:bob", created_by="key:bot")


@each(
    ("setting", "risk", "layer", "is_refused"),
    [
        ("off", ("execute",), "recovery", False),
        ("high_risk", ("read",), "default", False),
        ("high_risk", ("write",), "user rule", False),
        ("high_risk", (), "default", False),
        ("high_risk", ("execute",), "default", True),
        ("high_risk", ("read", "network"), "default", True),
        ("high_risk", ("delegate", "write"), "default", True),
        ("high_risk", ("read",), "recovery", True),
        ("high_risk", ("write",), "effect", True),
        ("high_risk", ("write",), "user rule, effect", True),
        ("off", ("write",), "effect", False),
        ("all", ("read",), "default", True),
        ("all", (), "", True),
    ],
)
def test_the_setting_says_which_questions_need_somebody_else(
    setting: FourEyes, risk: tuple[str, ...], layer: str, is_refused: bool
) -> None:
    assert bool(find_four_eyes_problem(ADMIN, risk, layer, FOR_ADA, setting)) == is_refused
    assert bool(find_four_eyes_problem(ADMIN, risk, layer, BY_ADA, setting)) == is_refused
    assert find_four_eyes_problem(ADMIN, risk, layer, OF_OTHERS, setting) == ""


def test_the_reason_says_why_and_that_nothing_was_decided() -> None:
    assert find_four_eyes_problem(ADMIN, ("execute",), "", FOR_ADA, "high_risk") == (
        "The run acts for user:ada, so another person has to decide. Nothing was decided."
    )
    assert find_four_eyes_problem(ADMIN, ("execute",), "", BY_ADA, "high_risk") == (
        "The run was created by user:ada, so another person has to decide. Nothing was decided."
    )


@pytest.mark.parametrize("requester", ["ada", "Ada", "USER:ADA", " user:ada ", "\uff55ser:ada"])
def test_another_spelling_of_a_name_is_the_same_person(requester: str) -> None:
    assert find_four_eyes_problem(
        ADMIN, ("execute",), "", RunOwnershipData(agent="billing", requester=requester), "high_risk"
    )


def test_a_key_is_not_the_person_of_the_same_name() -> None:
    run = RunOwnershipData(agent="billing", requester="user:bob", created_by="key:ada")

    assert find_four_eyes_problem(ADMIN, ("execute",), "", run, "all") == ""


@given(st.text(), st.text(), st.sets(st.text()), st.text(), st.sampled_from(("off", "high_risk", "all")))
def test_any_text_is_compared_and_none_raises(
    requester: str, created_by: str, risk: set[str], layer: str, setting: FourEyes
) -> None:
    find_four_eyes_problem(
        ADMIN, risk, layer, RunOwnershipData(agent="a", requester=requester, created_by=created_by), setting
    )
