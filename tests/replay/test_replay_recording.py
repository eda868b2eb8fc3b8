"""A run as plain data that can be written, read and compared; and a look at it at any event."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.call import Answer
from interlock.domain.errors import ConfigurationError, LogCorruptError
from interlock.domain.event import (
    ApprovalGranted,
    ApprovalRequested,
    BatchStarted,
    CallProposed,
    CallValidated,
    Fact,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyEvaluated,
    RunCompleted,
    RunPaused,
    RunResumed,
    RunStarted,
    UserMessageReceived,
)
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, UserMessage
from interlock.domain.observation import Observation
from interlock.domain.state.lifecycle import RunState
from interlock.replay.differences import compare_recordings
from interlock.replay.recording import MAX_RECORDING_BYTES, Recording, from_json, to_json
from interlock.replay.recording_reader import read_recording
from interlock.replay.trace import Replay
from tests.history.recorded import ASK, FACTS, observed, question, record, started

SENT = Observation(call_id="write", tool="write_file", ok=True, summary="Written.", duration_ms=4.0)
TOLD: list[Fact] = [
    RunStarted(schema=1, agent="writer", workspace="/w"),
    UserMessageReceived(text="Write it."),
    ModelRequested(menu_digest="m", message_count=1, agent="writer"),
    ModelFailed(message="busy", retryable=True),
    ModelRequested(menu_digest="m", message_count=1, agent="writer"),
    ModelResponded(text="So be it.", call_count=1),
    BatchStarted(call_count=1),
    CallProposed(call_id="write", tool="write_file", raw_input={"path": "notes.txt"}, raw_bytes=20),
    CallValidated(call_id="write", ok=True),
    PolicyEvaluated(call_id="write", tool="write_file", decision=ASK),
    ApprovalRequested(call_id="write", question=question()),
    RunPaused(kind="approval", waiting=("write",)),
    ApprovalGranted(call_id="write", action_id="act_1", answer=Answer(approved=True, by="ann")),
    RunResumed(),
    started("write", "write_file", 14, "act_1"),
    observed(SENT),
    ModelRequested(menu_digest="m", message_count=3, agent="writer"),
    ModelResponded(text="Done."),
    RunCompleted(message="Done."),
]
ENTRIES = record(TOLD)


def test_a_recording_has_what_was_said_and_what_became_of_every_call() -> None:
    recording = read_recording(ENTRIES)

    assert (recording.agent, recording.workspace, recording.opening) == ("writer", "/w", ("Write it.",))
    assert [(answer.seq, answer.failed, answer.text) for answer in recording.answers] == [
        (3, "busy", ""),
        (5, "", "So be it."),
        (17, "", "Done."),
    ]
    assert recording.answers[1].calls == (
        ProposedCall(call_id="write", tool="write_file", arguments='{"path":"notes.txt"}'),
    )
    (call,) = recording.calls.values()
    assert (call.valid, call.started, call.observation, call.observed_seq) == (True, True, SENT, 15)
    assert (recording.decisions, recording.outcomes) == ({"write": "ask"}, {"write": "ok"})
    assert (recording.end, recording.end_seq, recording.text, recording.chat) == ("completed", 18, "Done.", False)


def test_a_recording_survives_being_written_and_read() -> None:
    recording = read_recording(ENTRIES)

    assert from_json(to_json(recording)) == recording
    assert compare_recordings(recording, from_json(to_json(recording))) == ()


@given(st.text() | st.binary())
def test_whatever_is_called_a_recording_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(ConfigurationError, match="not a recording of a run"):
        from_json(text)


def test_a_recording_of_another_form_or_size_is_refused() -> None:
    other = msgspec.structs.replace(read_recording(ENTRIES), form="interlock/recording/v9")

    with pytest.raises(ConfigurationError, match="its form is"):
        from_json(to_json(other))
    with pytest.raises(ConfigurationError, match="larger than"):
        from_json(b" " * (MAX_RECORDING_BYTES + 1))


def test_a_log_that_is_not_what_was_written_is_not_read() -> None:
    with pytest.raises(LogCorruptError):
        read_recording([*ENTRIES[:3], msgspec.structs.replace(ENTRIES[3], body=ENTRIES[4].body)])
    with pytest.raises(LogCorruptError, match="no event"):
        read_recording([])


def test_every_run_that_was_ever_recorded_can_be_read_up_to_any_event() -> None:
    for facts in (FACTS, TOLD):
        for count in range(1, len(facts) + 1):
            assert isinstance(read_recording(record(facts[:count])), Recording)


def test_a_difference_says_which_event_would_be_another_one() -> None:
    was = read_recording(ENTRIES)
    call = was.calls["write"]
    changed = msgspec.structs.replace(call, observation=msgspec.structs.replace(SENT, summary="Lost."))

    (found,) = compare_recordings(was, msgspec.structs.replace(was, calls={"write": changed}))

    assert (found.seq, found.kind, found.call_id) == (15, "observation", "write")
    assert "Written." in found.was
    assert "Lost." in found.now
    assert found.words.startswith("event 15: observation of write: was ")


def test_a_moment_has_the_conversation_and_what_people_were_asked() -> None:
    replay = Replay(ENTRIES)

    asked, answered = replay.moment(11), replay.moment(15)

    assert asked.ledger.state is RunState.PAUSED_APPROVAL
    assert [each.action_id for each in asked.questions] == ["act_1"]
    assert asked.conversation == (UserMessage("Write it."),)
    assert answered.questions == ()
    assert [type(message) for message in answered.conversation] == [UserMessage, AssistantMessage, ToolMessage]


def test_nobody_is_asked_any_more_when_a_run_is_over() -> None:
    assert Replay(ENTRIES).moment(len(ENTRIES) - 1).questions == ()
    assert Replay(record(FACTS)).moment(20).event.seq == 20
    with pytest.raises(IndexError, match="has events 0 to"):
        Replay(ENTRIES).moment(len(ENTRIES))
