"""Every event type has one row of presentation, and every row can be shown."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import interlock
from interlock.domain import event as facts
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import Fact
from interlock.domain.observation import Observation
from interlock.rendering.events import EVENT_ROWS, describe_answerer, get_call_id, present_event
from tests.each import each

CONSOLE_TEMPLATES = Path(interlock.__file__).parent / "server" / "console" / "templates"
QUESTION = Question(
    action_id="act_1",
    run_id="r",
    call_id="c",
    tool_name="t",
    kind="approval",
    prompt="Run t?",
    arguments={},
    payload_hash="h",
)
#: The fields of facts that have no default.
REQUIRED: dict[str, Any] = {
    "schema": 1,
    "kind": "approval",
    "waiting": (),
    "message": "m",
    "digest": "d",
    "versions": {},
    "artifact_id": "a",
    "text": "t",
    "menu_digest": "d",
    "message_count": 1,
    "outputs": {"c": "a"},
    "first_seq": 1,
    "last_seq": 2,
    "summary": "s",
    "claim": "c",
    "status": "s",
    "call_count": 1,
    "call_id": "c",
    "tool": "t",
    "ok": True,
    "decision": Decision(verdict=Verdict.ASK, reason="r", rule_ids=("one",), layer="user rule"),
    "question": QUESTION,
    "action_id": "act_1",
    "answer": Answer(approved=True, by="user:ann", reason="fine"),
    "reason": "r",
    "outcome": "exit 0",
    "invocation_id": "i",
    "executor": "e",
    "tool_version": "1",
    "timeout_seconds": 1.0,
    "exit": "ok",
    "duration_ms": 1.0,
    "child_run_id": "run_2",
    "observation_id": "o",
    "server": "files",
    "connection": "c",
    "observation": Observation(call_id="c", tool="t", ok=True, summary="s"),
}


def make_fact(kind: type[Any], **fields: Any) -> Any:
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    return kind(**{name: REQUIRED[name] for name in required} | fields)


def test_the_table_has_exactly_the_event_types() -> None:
    assert EVENT_ROWS.keys() == {str(kind.__struct_config__.tag) for kind in get_args(Fact)}


@each("kind", get_args(Fact))
def test_every_event_can_be_shown(kind: type[Fact]) -> None:
    shown = present_event(make_fact(kind))

    assert shown.title
    assert shown.icon
    assert shown.detail or kind in (facts.RunStarted, facts.RunResumed, facts.RunCompleted, facts.RunCancelled)


def test_the_console_has_a_drawing_for_every_icon() -> None:
    drawings = (CONSOLE_TEMPLATES / "parts.html").read_text()
    verdicts = [make_fact(facts.PolicyEvaluated, decision=Decision(verdict=each, reason="")) for each in Verdict]
    icons = {present_event(fact).icon for fact in verdicts} | {row.icon for row in EVENT_ROWS.values()}

    assert {icon for icon in icons if f'  "{icon}": "M' not in drawings} == set()


def test_titles_tell_events_apart() -> None:
    assert len({row.title for row in EVENT_ROWS.values()}) == len(EVENT_ROWS)
    assert len({row.record_title for row in EVENT_ROWS.values()}) == len(EVENT_ROWS)


@each(
    ("fact", "detail", "tone"),
    [
        (make_fact(facts.PolicyEvaluated), "Asks a person (user rule: one): r", "warning"),
        (
            make_fact(facts.PolicyEvaluated, decision=Decision(verdict=Verdict.DENY, reason="Never.")),
            "Denied (default): Never.",
            "danger",
        ),
        (make_fact(facts.CallValidated, ok=False, errors=("a: wrong", "b: missing")), "a: wrong; b: missing", "danger"),
        (make_fact(facts.ApprovalGranted), "by user:ann: fine", "success"),
        (
            make_fact(facts.ApprovalGranted, answer=Answer(approved=True, by="ann", arguments={})),
            "by ann with edited arguments",
            "success",
        ),
        (make_fact(facts.ApprovalRequested), "Run t?", "warning"),
        (make_fact(facts.CallProposed, raw_input={"a": 1}, reason="why"), 't {"a": 1}; why', "neutral"),
        (make_fact(facts.InvocationCompleted, exit="error", code="tool_failed"), "error, tool_failed, 1 ms", "danger"),
        (make_fact(facts.ModelResponded, call_count=2, text="Hi."), "2 calls, 0 ms: Hi.", "neutral"),
        (make_fact(facts.ContextTrimmed), "1 output of events 1 to 2", "neutral"),
        (make_fact(facts.ContextCompacted), "events 1 to 2, 0 ms: s", "neutral"),
        (
            make_fact(facts.ModelRequested, purpose="summary", estimated_tokens=1_200),
            "for a summary, about 1,200 tokens",
            "neutral",
        ),
        (make_fact(facts.RunCancelled, by="ann"), "by ann", "neutral"),
        (make_fact(facts.RunCancelled, by="ann", message="Enough."), "by ann: Enough.", "neutral"),
        (make_fact(facts.RunCancelled, by="ann", message="Cancelled by ann."), "Cancelled by ann.", "neutral"),
    ],
)
def test_an_event_says_what_matters(fact: Any, detail: str, tone: str) -> None:
    shown = present_event(fact)

    assert (shown.detail, shown.tone) == (detail, tone)


@each(
    ("code", "title", "tone"),
    [
        ("", "Run failed", "danger"),
        ("tool_failed", "Run failed", "danger"),
        ("approval_unavailable", "Run failed", "danger"),
        ("user_denied", "Run rejected", "neutral"),
        ("consent_refused", "Run rejected", "neutral"),
        ("approval_expired", "Run expired", "neutral"),
    ],
)
def test_a_run_that_a_person_ended_did_not_fail(code: str, title: str, tone: str) -> None:
    shown = present_event(make_fact(facts.RunFailed, code=code))
    assert (shown.title, shown.tone) == (title, tone)


def test_an_event_knows_its_call() -> None:
    assert get_call_id(make_fact(facts.CallObserved)) == "c"
    assert get_call_id(make_fact(facts.CallProposed)) == "c"
    assert get_call_id(make_fact(facts.RunResumed)) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"by": "alice", "channel": "console"}, "by alice, in the console, proved"),
        ({"by": "alice", "channel": "cli"}, "by alice, on the command line, proved"),
        ({"by": "alice"}, "by alice"),
        ({"channel": "elicitation", "assurance": "claimed"}, "claimed by the client (elicitation)"),
        ({"by": "bob", "assurance": "claimed"}, "by bob, claimed by the client"),
        ({"by": "bob", "channel": "hook"}, "by bob, through the client (hook), which is trusted"),
        ({"by": "callback", "channel": "callback"}, "by callback, from the program's callback"),
        ({}, ""),
    ],
)
def test_an_answer_says_where_it_was_given(fields: dict[str, Any], words: str) -> None:
    assert describe_answerer(Answer(approved=True, **fields)) == words


def test_a_call_that_another_program_executes_says_so() -> None:
    started = facts.InvocationStarted(
        invocation_id="i",
        call_id="c",
        tool="bash",
        executor="external/claude-code",
        tool_version="1",
        timeout_seconds=1,
        origin="extension",
        source="claude-code",
    )

    assert present_event(started).detail == "bash, extension claude-code, executed by claude-code"
