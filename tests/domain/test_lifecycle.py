"""The state tables, looked at as graphs and word by word."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from interlock.domain.errors import IllegalTransitionError
from interlock.domain.ids import new_run_id
from interlock.domain.state.ledger import Ledger
from interlock.domain.state.lifecycle import (
    ACTION_TRANSITIONS,
    CALL_TRANSITIONS,
    RUN_STATUS,
    RUN_TRANSITIONS,
    ActionState,
    CallState,
    RunState,
    next_state,
)
from tests.each import each

Table = Mapping[Any, Mapping[str, Any]]

MACHINES: list[tuple[Table, type[StrEnum], StrEnum, set[StrEnum]]] = [
    (
        RUN_TRANSITIONS,
        RunState,
        RunState.RUNNING,
        {RunState.COMPLETED, RunState.DEGRADED, RunState.FAILED, RunState.CANCELLED},
    ),
    (CALL_TRANSITIONS, CallState, CallState.PROPOSED, {CallState.OBSERVED}),
    (
        ACTION_TRANSITIONS,
        ActionState,
        ActionState.PENDING,
        {ActionState.REJECTED, ActionState.EXPIRED, ActionState.EXECUTED, ActionState.VOID},
    ),
]
MACHINE = pytest.mark.parametrize(
    ("table", "states", "first", "finals"), MACHINES, ids=[states.__name__ for _, states, _, _ in MACHINES]
)


def reached(table: Table, state: StrEnum) -> set[StrEnum]:
    found: set[StrEnum] = set()
    waiting = [state]
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting.extend(table[state].values())
    return found


@MACHINE
def test_every_state_has_a_row_and_can_be_reached(
    table: Table, states: type[StrEnum], first: StrEnum, finals: set[StrEnum]
) -> None:
    assert set(table) == set(states)
    assert reached(table, first) == set(states)


@MACHINE
def test_the_final_states_and_only_they_have_no_way_out(
    table: Table, states: type[StrEnum], first: StrEnum, finals: set[StrEnum]
) -> None:
    assert {state for state, row in table.items() if not row} == finals


@MACHINE
def test_from_every_state_a_final_one_can_be_reached(
    table: Table, states: type[StrEnum], first: StrEnum, finals: set[StrEnum]
) -> None:
    assert all(reached(table, state) & finals for state in states)


#: What a run may do, in words of its own: from, to, and the word that leads there.
RUN_WAYS = {
    ("running", "completed"): "run.completed",
    ("running", "degraded"): "run.degraded",
    ("running", "failed"): "run.failed",
    ("running", "cancelled"): "run.cancelled",
    ("running", "paused_approval"): "paused for approval",
    ("running", "paused_consent"): "paused for consent",
    ("running", "paused_input"): "paused for input",
    **{
        (paused, after): word
        for paused in ("paused_approval", "paused_consent", "paused_input")
        for after, word in (
            ("running", "run.resumed"),
            ("failed", "run.failed"),
            ("cancelled", "run.cancelled"),
        )
    },
}


@pytest.mark.requirement("R127", "R128", "R129", "R130", "R131", "R132", "R133", "R134", "R135", "R136")
def test_a_run_has_exactly_these_transitions() -> None:
    assert {
        (state.value, after.value): word for state, row in RUN_TRANSITIONS.items() for word, after in row.items()
    } == RUN_WAYS


@pytest.mark.requirement("R135", "R136")
@each(
    ("state", "word"),
    [
        (state, word)
        for state in RunState
        for word in sorted(set(RUN_WAYS.values()))
        if word not in RUN_TRANSITIONS[state]
    ],
)
def test_every_other_transition_of_a_run_is_refused(state: RunState, word: str) -> None:
    with pytest.raises(IllegalTransitionError, match=f"RunState '{state.value}' has no transition '{word}'"):
        next_state(RUN_TRANSITIONS, state, word)


@pytest.mark.requirement("D11")
def test_an_action_has_exactly_these_transitions() -> None:
    assert {
        (state.value, word): after.value for state, row in ACTION_TRANSITIONS.items() for word, after in row.items()
    } == {
        ("pending", "granted"): "approved",
        ("pending", "rejected"): "rejected",
        ("pending", "expired"): "expired",
        ("pending", "voided"): "void",
        ("approved", "tool.invocation.started"): "executed",
        ("approved", "voided"): "void",
    }


@each("word", sorted({word for row in ACTION_TRANSITIONS.values() for word in row}))
@each("state", [ActionState.REJECTED, ActionState.EXPIRED, ActionState.EXECUTED, ActionState.VOID])
def test_an_answered_action_is_never_answered_or_used_again(state: ActionState, word: str) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(ACTION_TRANSITIONS, state, word)


def test_only_a_permitted_call_may_start_or_one_that_started_before_and_was_suspended() -> None:
    may_start = {state for state, row in CALL_TRANSITIONS.items() if "tool.invocation.started" in row}

    assert may_start == {CallState.PERMITTED, CallState.SUSPENDED}
    assert all(
        state is CallState.RUNNING for state, row in CALL_TRANSITIONS.items() if CallState.SUSPENDED in row.values()
    )


def test_a_call_is_permitted_only_by_policy_or_by_a_person() -> None:
    words = {word for row in CALL_TRANSITIONS.values() for word, after in row.items() if after is CallState.PERMITTED}

    assert words == {"allowed", "granted"}


def test_a_refused_call_is_never_permitted_again() -> None:
    assert reached(CALL_TRANSITIONS, CallState.REFUSED) == {CallState.REFUSED, CallState.OBSERVED}


def test_a_call_that_was_not_validated_is_never_permitted() -> None:
    assert set(CALL_TRANSITIONS[CallState.PROPOSED].values()) == {
        CallState.VALID,
        CallState.REFUSED,
        CallState.OBSERVED,
    }


def test_a_call_is_observed_once() -> None:
    before = set(CallState) - {CallState.OBSERVED}

    assert {state for state, row in CALL_TRANSITIONS.items() if "tool.observation" in row} == before


@pytest.mark.requirement("D05", "R126")
def test_every_state_of_a_run_has_one_of_five_words() -> None:
    assert {state.value: word for state, word in RUN_STATUS.items()} == {
        "running": "RUNNING",
        "paused_approval": "PAUSED_APPROVAL",
        "paused_consent": "PAUSED_CONSENT",
        "paused_input": "PAUSED_APPROVAL",
        "completed": "COMPLETED",
        "degraded": "COMPLETED",
        "failed": "FAILED",
        "cancelled": "FAILED",
    }


@pytest.mark.requirement("R124")
def test_a_run_has_an_id_of_its_own_and_starts_running() -> None:
    assert len({new_run_id() for _ in range(1000)}) == 1000
    assert Ledger(run_id=new_run_id()).state is RunState.RUNNING
