"""The run view, asserted literally, fact by fact, and the five words of the status."""

from typing import get_args

import pytest

from interlock.domain.call import Answer
from interlock.domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ApprovalVoided,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    RunCancelled,
    RunCompleted,
    RunDegraded,
    RunFailed,
    decode_event,
)
from interlock.domain.json import Json
from interlock.domain.observation import Observation
from interlock.domain.outcome import ERROR_CODES, Failure
from interlock.domain.state.ledger import Ledger
from interlock.domain.state.lifecycle import RUN_STATUS, RunState
from interlock.history.run_view import RunEvent, RunEventType, to_run_events
from tests.each import each

from .recorded import FACTS, event, observed, question, record, started

GRANTED = Answer(approved=True, by="ada", reason="fine")
REJECTED = Answer(approved=False, by="ada", reason="no")
KINDS = get_args(Fact)


def ask_shown(kind: str) -> dict[str, Json]:
    return {
        "tool": "write_file",
        "capability": "",
        "call_id": "write",
        "action_id": "act_1",
        "kind": kind,
        "prompt": "Write notes.txt?",
        "payload_hash": "sha256:11",
        "status": "PENDING",
    }


def unknown_outcome() -> Fact:
    failure = Failure.from_code("outcome_unknown", "It started, and nothing recorded its end.")
    return observed(Observation(call_id="c", tool="bash", ok=False, summary="Unknown.", failure=failure))


@pytest.mark.requirement("D01", "D07", "R139", "R141")
@each(
    ("fact", "kind", "shown"),
    [
        (
            started("write", "write_file", 23, action_id="act_1"),
            "TOOL_CALL",
            {"tool": "write_file", "call_id": "write", "invocation_id": "inv_23", "action_id": "act_1"},
        ),
        (
            ApprovalRequested(call_id="write", question=question()),
            "APPROVAL_REQUIRED",
            ask_shown("approval"),
        ),
        (
            InputRequested(call_id="write", question=question(kind="input")),
            "APPROVAL_REQUIRED",
            ask_shown("input"),
        ),
        (
            ApprovalGranted(call_id="write", action_id="act_1", answer=GRANTED),
            "APPROVAL_GRANTED",
            {"call_id": "write", "action_id": "act_1", "by": "ada", "reason": "fine"},
        ),
        (
            InputProvided(call_id="write", action_id="act_1", answer=GRANTED),
            "APPROVAL_GRANTED",
            {"call_id": "write", "action_id": "act_1", "by": "ada", "reason": "fine"},
        ),
        (
            ApprovalRejected(call_id="write", action_id="act_1", answer=REJECTED),
            "APPROVAL_REJECTED",
            {"call_id": "write", "action_id": "act_1", "by": "ada", "reason": "no"},
        ),
        (
            InputRefused(call_id="write", action_id="act_1", answer=REJECTED),
            "APPROVAL_REJECTED",
            {"call_id": "write", "action_id": "act_1", "by": "ada", "reason": "no"},
        ),
        (
            ApprovalExpired(call_id="write", action_id="act_1", answer=REJECTED),
            "ERROR",
            {
                "code": "approval_expired",
                "message": "Nobody answered in time.",
                "call_id": "write",
                "action_id": "act_1",
            },
        ),
        (
            ApprovalVoided(call_id="write", action_id="act_1", reason="The file changed."),
            "ERROR",
            {
                "code": "approval_voided",
                "message": "The file changed.",
                "call_id": "write",
                "action_id": "act_1",
            },
        ),
        (
            unknown_outcome(),
            "ERROR",
            {
                "code": "outcome_unknown",
                "message": "It started, and nothing recorded its end.",
                "call_id": "c",
            },
        ),
        (RunFailed(message="Stop."), "ERROR", {"code": "run_failed", "message": "Stop."}),
        (RunCancelled(message="Bye."), "ERROR", {"code": "run_cancelled", "message": "Bye."}),
        (RunCompleted(message="Done."), "COMPLETED", {"message": "Done.", "degraded": False}),
        (RunDegraded(message="Partly."), "COMPLETED", {"message": "Partly.", "degraded": True}),
    ],
)
def test_a_fact_shows_exactly_this(fact: Fact, kind: RunEventType, shown: dict[str, Json]) -> None:
    shown_event = event(7, fact)

    assert to_run_events(shown_event) == (RunEvent(kind, 7, shown_event.at, shown),)


@each("code", sorted(set(ERROR_CODES) - {"outcome_unknown"}))
def test_a_call_that_failed_is_no_error_of_the_run(code: str) -> None:
    failure = Failure.from_code(code, "Message.")
    fact = observed(Observation(call_id="c", tool="bash", ok=False, summary="Failed.", failure=failure))

    assert to_run_events(event(0, fact)) == ()


@pytest.mark.requirement("R138")
def test_a_recorded_run_shows_this_sequence() -> None:
    shown = [one for entry in record(FACTS) for one in to_run_events(decode_event(entry))]

    assert [(one.seq, one.type) for one in shown] == [
        (16, "APPROVAL_REQUIRED"),
        (17, "TOOL_CALL"),
        (21, "APPROVAL_GRANTED"),
        (23, "TOOL_CALL"),
        (27, "COMPLETED"),
    ]


@pytest.mark.requirement("R139")
def test_there_are_exactly_eight_types() -> None:
    assert get_args(RunEventType) == (
        "TOOL_CALL",
        "LLM_CALL",
        "APPROVAL_REQUIRED",
        "CONSENT_REQUIRED",
        "APPROVAL_GRANTED",
        "APPROVAL_REJECTED",
        "ERROR",
        "COMPLETED",
    )


@pytest.mark.requirement("R126", "D05")
@each(
    ("state", "shown"),
    [
        (RunState.RUNNING, "RUNNING"),
        (RunState.PAUSED_APPROVAL, "PAUSED_APPROVAL"),
        (RunState.PAUSED_CONSENT, "PAUSED_CONSENT"),
        (RunState.PAUSED_INPUT, "PAUSED_APPROVAL"),
        (RunState.COMPLETED, "COMPLETED"),
        (RunState.DEGRADED, "COMPLETED"),
        (RunState.FAILED, "FAILED"),
        (RunState.CANCELLED, "FAILED"),
    ],
)
def test_every_state_has_one_of_five_words(state: RunState, shown: str) -> None:
    assert RUN_STATUS[state] == shown


@pytest.mark.requirement("R124")
def test_a_run_starts_running() -> None:
    assert RUN_STATUS[Ledger(run_id="run_1").state] == "RUNNING"
