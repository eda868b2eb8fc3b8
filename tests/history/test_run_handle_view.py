"""The run-handle view, asserted literally, fact by fact."""

from typing import Any, get_args

import pytest

from interlock.domain.call import Answer
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ApprovalVoided,
    BatchStarted,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    PolicyEvaluated,
    WarningRaised,
    decode_event,
    event_type,
)
from interlock.domain.json import Json
from interlock.domain.observation import Content, Observation, OutputSize
from interlock.domain.outcome import Failure
from interlock.history.run_handle_view import AgentRunEvent, to_run_handle_events

from .recorded import FACTS, event, observed, question, record

ANSWER = Answer(approved=True, by="ada")
TYPES = {kind: str(kind.__struct_config__.tag) for kind in get_args(Fact)}


def shown(fact: Fact) -> list[tuple[str, dict[str, Json]]]:
    return [(one.type, one.data) for one in to_run_handle_events(event(0, fact))]


def judged(verdict: Verdict) -> PolicyEvaluated:
    return PolicyEvaluated(call_id="c", tool="grep", decision=Decision(verdict=verdict, reason="Because."))


def completed(**fields: Json) -> dict[str, Json]:
    blank: dict[str, Any] = {"call_id": "c", "tool": "grep", "ok": True, "summary": "Summary."}
    [(kind, data)] = shown(observed(Observation(**{**blank, **fields})))
    assert kind == "tool_completed"
    return data


def failed(code: str, message: str = "Message.") -> dict[str, Json]:
    return completed(ok=False, failure=Failure.from_code(code, message))


@pytest.mark.requirement("D01", "R001", "R010", "R012")
@pytest.mark.parametrize(
    ("fact", "view"),
    [
        (BatchStarted(call_count=3), ("tool_batch_started", {"tool_call_count": 3})),
        (
            ApprovalRequested(call_id="write", question=question()),
            (
                "run_paused",
                {
                    "tool_name": "write_file",
                    "reason": "Write notes.txt?",
                    "payload": {
                        "action_id": "act_1",
                        "tool_call_id": "write",
                        "arguments": {"path": "notes.txt", "text": "hello"},
                        "payload_hash": "sha256:11",
                        "risk": ["write"],
                        "rule_ids": ["writes"],
                    },
                },
            ),
        ),
        (
            ApprovalGranted(call_id="c", action_id="a", answer=ANSWER),
            ("run_resumed", {"approved": True}),
        ),
        (
            ApprovalRejected(call_id="c", action_id="a", answer=Answer(approved=False)),
            ("run_resumed", {"approved": False}),
        ),
        (
            ApprovalExpired(call_id="c", action_id="a", answer=Answer(approved=False, expired=True)),
            ("run_resumed", {"approved": False}),
        ),
        (WarningRaised(message="Careful."), ("warning", {"message": "Careful."})),
    ],
    ids=lambda value: event_type(value) if type(value) in TYPES else "",
)
def test_a_fact_shows_exactly_this(fact: Fact, view: tuple[str, dict[str, Json]]) -> None:
    assert to_run_handle_events(event(0, fact)) == (AgentRunEvent(*view),)


@pytest.mark.requirement("R008", "R009")
@pytest.mark.parametrize(
    ("verdict", "action"),
    [
        (Verdict.ALLOW, "allow"),
        (Verdict.DENY, "deny"),
        (Verdict.ASK, "defer"),
        (Verdict.REQUEST_INPUT, "request_user_input"),
    ],
)
def test_every_verdict_is_a_policy_decision(verdict: Verdict, action: str) -> None:
    assert shown(judged(verdict)) == [
        ("policy_decision", {"tool_name": "grep", "action": action, "reason": "Because."})
    ]


@pytest.mark.requirement("R011", "D08")
@pytest.mark.parametrize(
    "fact",
    [
        InputRequested(call_id="write", question=question(kind="input")),
        InputProvided(call_id="write", action_id="act_1", answer=ANSWER),
        InputRefused(call_id="write", action_id="act_1", answer=Answer(approved=False)),
        ApprovalVoided(call_id="write", action_id="act_1", reason="The file changed."),
    ],
    ids=event_type,
)
def test_a_question_for_a_value_pauses_and_resumes_without_an_event(fact: Fact) -> None:
    assert shown(fact) == []


def test_only_these_facts_show_something() -> None:
    shown_types = {
        fact_event.type for fact_event in map(decode_event, record(FACTS)) if to_run_handle_events(fact_event)
    }

    assert shown_types == {
        "tool.batch.started",
        "tool.permission",
        "approval.requested",
        "approval.granted",
        "tool.observation",
        "warning",
    }


@pytest.mark.requirement("R013")
def test_a_call_that_worked_is_completed_with_its_output() -> None:
    assert completed(content=Content(text="3 matches")) == {
        "tool_name": "grep",
        "success": True,
        "output": "3 matches",
        "error": None,
        "tool_call_id": "c",
    }


@pytest.mark.requirement("R013", "R014", "D10")
def test_a_denied_call_is_completed_with_the_literal_denial() -> None:
    assert failed("policy_denied", "Denied by policy: never push. Nothing was executed.") == {
        "tool_name": "grep",
        "success": False,
        "output": None,
        "error": "Denied by policy",
        "tool_call_id": "c",
    }


@pytest.mark.requirement("R015", "R016")
@pytest.mark.parametrize(
    "code", ["timed_out", "user_denied", "approval_expired", "sandbox_denied", "schema_invalid", "tool_failed"]
)
def test_a_call_that_failed_is_completed_with_its_failure(code: str) -> None:
    data = failed(code, "What happened.")

    assert (data["success"], data["output"], data["error"]) == (False, None, "What happened.")


def test_a_failed_call_keeps_the_output_it_had() -> None:
    data = completed(ok=False, content=Content(text="1 failed"), exit_code=1)

    assert (data["output"], data["error"]) == ("1 failed", "Summary.")


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (None, None),
        (Content(text='{"n": [1, null]}', format="json"), {"n": [1, None]}),
        (Content(text='{"n": 1}'), '{"n": 1}'),
        (Content(text='{"n": 1, "n": 2}', format="json"), '{"n": 1, "n": 2}'),
        (Content(text="--- a\n+++ b", format="diff"), "--- a\n+++ b"),
    ],
)
def test_output_is_data_only_where_it_is_json(content: Content | None, output: Json) -> None:
    assert completed(content=content)["output"] == output


def test_cut_json_stays_text() -> None:
    size = OutputSize(produced=9, kept=9, shown=3, omitted=6)

    assert completed(content=Content(text="[1]", format="json"), size=size)["output"] == "[1]"


@pytest.mark.requirement("R013", "R014")
def test_a_recorded_run_shows_this_sequence() -> None:
    shown_events = [one for entry in record(FACTS) for one in to_run_handle_events(decode_event(entry))]

    assert [(one.type, one.data.get("tool_name", "")) for one in shown_events] == [
        ("tool_batch_started", ""),
        ("policy_decision", "read_file"),
        ("policy_decision", "git_push"),
        ("policy_decision", "write_file"),
        ("tool_completed", "read_file"),
        ("tool_completed", "git_push"),
        ("run_paused", "write_file"),
        ("tool_completed", "read_file"),
        ("run_resumed", ""),
        ("tool_completed", "write_file"),
        ("warning", ""),
    ]
