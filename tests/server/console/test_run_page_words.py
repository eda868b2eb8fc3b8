"""Rows of the timeline and lines of diffs: what a row is about, and no line is lost."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.domain import event as facts
from interlock.domain.event import Event, Fact
from interlock.rendering.edit_diff import diff_json, parse_unified_diff
from interlock.server.console.views.events import MAX_DETAIL_CHARS, build_timeline_row
from tests.rendering.test_events import make_fact


def _event(kind: type[Fact], **fields: Any) -> Event:
    return Event(3, "r", 1, "r", None, make_fact(kind, **fields))


def test_a_row_knows_its_call_its_question_and_the_run_inside() -> None:
    assert build_timeline_row(_event(facts.CallObserved)).call_id == "c"
    assert build_timeline_row(_event(facts.ApprovalRequested)).action_id == "act_1"
    assert build_timeline_row(_event(facts.InvocationSuspended)).child_run_id == "run_2"


@given(st.text(max_size=400))
def test_an_excerpt_says_how_much_it_leaves_out(text: str) -> None:
    shown = build_timeline_row(_event(facts.WarningRaised, message=text)).presentation.detail
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
