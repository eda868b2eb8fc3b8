"""Words of the timeline and lines of diffs: every fact has words, and no line is lost."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain import event as facts
from interlock.domain.call import Answer, Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import Event, Fact
from interlock.domain.observation import Observation
from interlock.server.console.views.diffs import diff_json, parse_unified_diff
from interlock.server.console.views.events import MAX_DETAIL_CHARS, build_timeline_row, shorten

QUESTION = Question(
    action_id="act_1",
    run_id="r",
    call_id="c",
    tool_name="t",
    kind="approval",
    prompt="",
    arguments={},
    payload_hash="h",
)
#: What a fact needs beside what has a default.
NEEDED: dict[str, Any] = {
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
    "claim": "c",
    "status": "s",
    "call_count": 1,
    "call_id": "c",
    "tool": "t",
    "ok": True,
    "decision": Decision(verdict=Verdict.ASK, reason="r", rule_ids=("one",)),
    "question": QUESTION,
    "action_id": "act_1",
    "answer": Answer(approved=True, by="user:ann"),
    "reason": "r",
    "invocation_id": "i",
    "executor": "e",
    "tool_version": "1",
    "timeout_seconds": 1.0,
    "exit": "ok",
    "duration_ms": 1.0,
    "child_run_id": "run_2",
    "observation_id": "o",
    "observation": Observation(call_id="c", tool="t", ok=True, summary="s"),
}


def _event(kind: type[Fact]) -> Event:
    fields = [field for field in msgspec.structs.fields(kind) if field.required]
    fact = kind(**{field.name: NEEDED[field.name] for field in fields})
    return Event(3, "r", 1, "r", None, fact)


@pytest.mark.parametrize("kind", get_args(Fact), ids=lambda kind: kind.__name__)
def test_every_fact_is_told_in_words_of_its_own(kind: type[Fact]) -> None:
    row = build_timeline_row(_event(kind))
    assert row.told.title
    assert row.told.title != row.type
    assert row.told.icon != "·"


def test_a_row_knows_its_call_its_question_and_the_run_inside() -> None:
    assert build_timeline_row(_event(facts.CallObserved)).call_id == "c"
    assert build_timeline_row(_event(facts.ApprovalRequested)).action_id == "act_1"
    assert build_timeline_row(_event(facts.InvocationSuspended)).child_run_id == "run_2"


@given(st.text(max_size=400))
def test_an_excerpt_says_how_much_it_leaves_out(text: str) -> None:
    shown = shorten(text)
    more = len(text) - MAX_DETAIL_CHARS
    assert shown == text if more <= 0 else shown == f"{text[:MAX_DETAIL_CHARS]} [... {more:,} more characters]"


@given(st.text(st.sampled_from("+- @\\a\n"), max_size=80))
def test_no_line_of_a_diff_is_lost_whatever_it_holds(text: str) -> None:
    lines = parse_unified_diff(text)
    whole = [line.text if line.kind == "place" else f"{line.sign}{line.text}" for line in lines]
    assert [each.rstrip(" ") for each in whole] == [each.rstrip(" ") for each in text.split("\n")]


def test_a_changed_value_is_a_line_that_was_and_a_line_that_is() -> None:
    lines = diff_json({"order": "A", "amount": 10}, {"order": "A", "amount": 5})
    changed = [(line.words, line.text.strip()) for line in lines if line.words]
    assert changed == [("removed", '"amount": 10,'), ("added", '"amount": 5,')]
    assert diff_json({"a": 1}, {"a": 1}) == []


def test_what_cannot_be_compared_in_time_is_not() -> None:
    assert diff_json({"a": list(range(2_000))}, {"a": list(range(2_001))}) == []
