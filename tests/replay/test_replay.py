"""Replay shows what was recorded and has no way to execute."""

import subprocess
import sys

import msgspec
import pytest

from interlock.domain.errors import IllegalTransitionError, LogCorruptError
from interlock.domain.event import BatchStarted, CallProposed, CallValidated, Fact, RunCompleted, RunStarted
from interlock.domain.observation import Observation
from interlock.domain.outcome import Failure
from interlock.domain.rendering import render_for_model
from interlock.domain.state.lifecycle import CallState, RunState
from interlock.history.fold import fold_entries
from interlock.replay.trace import Replay
from tests.history.recorded import FACTS, INVALID, PUSHED, READ, RUN, WRITTEN, observed, proposed, record

ENTRIES = record(FACTS)
FOUND = Observation(call_id="c", tool="grep", ok=True, summary="Found.")


@pytest.mark.requirement("R269")
def test_replay_returns_the_recorded_observations() -> None:
    assert Replay(ENTRIES).observations() == (INVALID, PUSHED, READ, WRITTEN)


def test_a_replay_steps_through_every_event() -> None:
    replay = Replay(ENTRIES)

    assert len(replay) == len(FACTS)
    assert [step.event.fact for step in replay] == list(FACTS)


def test_every_step_has_the_state_right_after_its_event() -> None:
    for step in Replay(ENTRIES):
        assert step.ledger == fold_entries(RUN, ENTRIES[: step.event.seq + 1])


def test_the_state_at_any_event_can_be_looked_at() -> None:
    replay = Replay(ENTRIES)

    assert replay.state_at(20).state is RunState.PAUSED_APPROVAL
    assert replay.state_at(20).calls["write"].state is CallState.WAITING
    assert replay.state_at(22).state is RunState.RUNNING
    assert replay.state_at(22).calls["write"].state is CallState.PERMITTED


@pytest.mark.parametrize("seq", [-1, len(ENTRIES)])
def test_there_is_no_state_at_an_event_that_is_not_there(seq: int) -> None:
    with pytest.raises(IndexError, match="run_1 has events 0 to 27"):
        Replay(ENTRIES).state_at(seq)


def test_changing_the_state_of_a_step_touches_no_other() -> None:
    first, second = Replay(ENTRIES), Replay(ENTRIES)
    step = list(first)[10]
    step.ledger.calls.clear()

    assert step.ledger == second.state_at(10)


@pytest.mark.requirement("R255")
def test_messages_are_what_the_model_saw_in_its_own_order() -> None:
    assert Replay(ENTRIES).messages() == (
        ("read", render_for_model(READ)),
        ("push", render_for_model(PUSHED)),
        ("invalid", render_for_model(INVALID)),
        ("write", render_for_model(WRITTEN)),
    )


def test_a_call_without_an_observation_has_no_message() -> None:
    assert [message.call_id for message in Replay(ENTRIES[:20]).messages()] == ["read", "push", "invalid"]


def repeated(digest: str) -> Replay:
    """One call, and its id again: in the same batch, then in the next one."""
    again = CallProposed(call_id="c", tool="grep", digest=digest, duplicate=True)
    first: list[Fact] = [RunStarted(schema=1), BatchStarted(call_count=2), proposed("c", "grep"), again]
    return Replay(record([*first, observed(FOUND), BatchStarted(call_count=1), again]))


def test_a_call_proposed_twice_has_one_message_per_batch() -> None:
    assert repeated("d-c").messages() == (("c", render_for_model(FOUND)),) * 2


def test_a_call_that_reused_an_id_does_not_get_the_outcome_of_the_other() -> None:
    assert repeated("d-other").messages() == (("c", render_for_model(FOUND)),)


@pytest.mark.requirement("R196")
def test_a_run_whose_tools_no_longer_exist_shows_the_definitions_it_had() -> None:
    menu = list(Replay(ENTRIES))[1]

    assert menu.ledger.menu_digest == "menu1"
    assert {name: call.tool_version for name, call in Replay(ENTRIES).state_at(6).calls.items()} == {
        "read": "v1",
        "push": "v1",
        "invalid": "v1",
        "write": "v1",
    }


@pytest.mark.requirement("R270")
def test_a_call_that_was_refused_in_validation_is_replayed_as_it_is() -> None:
    failure = Failure.from_code("unknown_tool", "There is no tool 'gone'.")
    refused = Observation(call_id="c", tool="gone", ok=False, summary="Unknown tool.", failure=failure)
    facts = [
        RunStarted(schema=1),
        BatchStarted(call_count=1),
        CallProposed(call_id="c", tool="gone", raw_input={}),
        CallValidated(call_id="c", ok=False, errors=("There is no tool 'gone'.",)),
        observed(refused),
        RunCompleted(),
    ]
    replay = Replay(record(facts))

    assert replay.observations() == (refused,)
    assert replay.messages() == (("c", render_for_model(refused)),)
    assert replay.state_at(4).calls["c"].started_seq == -1


def test_nothing_is_no_run_to_replay() -> None:
    with pytest.raises(LogCorruptError, match="there is no event to replay"):
        Replay([])


def test_an_edited_log_is_not_replayed() -> None:
    edited = list(ENTRIES)
    edited[4] = msgspec.structs.replace(edited[4], body=edited[4].body.replace(b"origin", b"backup"))

    with pytest.raises(LogCorruptError, match="event 4 of run_1"):
        Replay(edited)


def test_a_log_that_leaves_the_tables_is_not_replayed() -> None:
    with pytest.raises(IllegalTransitionError):
        Replay(record([RunStarted(schema=1), RunCompleted(), RunCompleted()]))


@pytest.mark.requirement("R269")
def test_history_reaches_nothing_that_executes() -> None:
    """What importing all of `history` loads: no pipeline, no sandbox, no tools, no implementation of any part, and of
    `rendering` only the names of states.
    """
    program = (
        "import importlib, pkgutil, sys, interlock.history as history\n"
        "for found in pkgutil.iter_modules(history.__path__, 'interlock.history.'):\n"
        "    importlib.import_module(found.name)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('interlock.')))\n"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    reached = {name for name in loaded.split() if not name.startswith(("interlock.domain", "interlock.history"))}
    states = {"interlock.rendering", "interlock.rendering.run_states"}
    assert reached == {"interlock.storage", "interlock.storage.event_log", *states}
