"""Turns of a run: what was said and done, from any part of its events."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.domain import event as facts
from interlock.domain.event import Event, Fact
from interlock.domain.messages import Usage
from interlock.domain.observation import Observation
from interlock.history.turns import (
    CallEntry,
    EndEntry,
    ModelEntry,
    NoteEntry,
    Turn,
    UserEntry,
    build_turns,
    split_turns,
)

ASKED = facts.ModelRequested(menu_digest="0", message_count=1, agent="shop", model="m")
SAID = facts.ModelResponded(text="Look.", call_count=1, usage=Usage(input_tokens=3))
OBSERVED = facts.CallObserved(
    observation_id="o", observation=Observation(call_id="c1", tool="lookup", ok=True, summary="Found.")
)
FACTS: list[Fact] = [
    facts.RunStarted(schema=1, agent="shop"),
    facts.UserMessageReceived(text="Where is it?", by="user:sam"),
    ASKED,
    SAID,
    facts.BatchStarted(call_count=1),
    facts.CallProposed(call_id="c1", tool="lookup", raw_input={"order": "A-1"}),
    OBSERVED,
    ASKED,
    facts.ModelFailed(message="Overloaded."),
    facts.WarningRaised(message="Again."),
    ASKED,
    facts.ModelResponded(text="It is here."),
    facts.RunCompleted(message="It is here."),
]


def _events(written: list[Fact]) -> list[Event]:
    return [Event(seq, "run_1", 1_000 + seq, "run_1", None, fact) for seq, fact in enumerate(written)]


def _kinds(turns: tuple[Turn, ...]) -> list[list[str]]:
    return [[type(entry).__name__ for entry in turn.entries] for turn in turns]


def test_a_run_is_told_turn_by_turn() -> None:
    turns = build_turns(_events(FACTS))
    assert _kinds(turns) == [
        ["UserEntry"],
        ["ModelEntry", "CallEntry"],
        ["ModelEntry", "NoteEntry"],
        ["ModelEntry", "EndEntry"],
    ]
    assert [(turn.seq, turn.last_seq) for turn in turns] == [(1, 1), (2, 6), (7, 9), (10, 12)]
    said, failed, last = (turns[at].entries[0] for at in (1, 2, 3))
    assert said == ModelEntry(
        seq=2,
        started_at=1_002,
        agent="shop",
        model="m",
        ended_at=1_003,
        answered_seq=3,
        text="Look.",
        call_count=1,
        usage=Usage(input_tokens=3),
    )
    assert isinstance(failed, ModelEntry)
    assert failed.problem == "Overloaded."
    assert isinstance(last, ModelEntry)


def test_the_end_does_not_repeat_the_last_answer() -> None:
    end = build_turns(_events(FACTS))[-1].entries[-1]
    assert isinstance(end, EndEntry)
    assert end.message == ""
    other = build_turns(_events([*FACTS[:-1], facts.RunFailed(message="No claim was checked.")]))[-1].entries[-1]
    assert isinstance(other, EndEntry)
    assert other.message == "No claim was checked."


def test_a_part_begins_in_the_middle_of_a_call() -> None:
    """A result whose call is on the page before is shown by itself."""
    events = _events(FACTS)
    turns = build_turns(events[6:])
    assert _kinds(turns) == [["NoteEntry"], ["ModelEntry", "NoteEntry"], ["ModelEntry", "EndEntry"]]
    assert turns[0].entries == (NoteEntry(events[6]),)


def test_an_open_request_has_no_end() -> None:
    (_, turn) = build_turns(_events(FACTS[:3]))
    (asked,) = turn.entries
    assert isinstance(asked, ModelEntry)
    assert (asked.ended_at, asked.answered_seq, asked.text) == (0, -1, "")


@given(st.lists(st.sampled_from(FACTS[1:]), max_size=40), st.integers(0, 40))
def test_no_event_is_lost_between_turns(written: list[Fact], cut: int) -> None:
    events = _events([FACTS[0], *written])[cut:]
    parts = split_turns(events)
    assert [event for part in parts for event in part] == events
    entries = [entry for turn in build_turns(events) for entry in turn.entries]
    assert sum(isinstance(entry, UserEntry) for entry in entries) == sum(
        isinstance(event.fact, facts.UserMessageReceived) for event in events
    )
    calls = [entry.view.call_id for entry in entries if isinstance(entry, CallEntry)]
    assert len(calls) == len(set(calls))
