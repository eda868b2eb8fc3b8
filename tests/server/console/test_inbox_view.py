"""What the inbox works out about a question before it is drawn."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import LocalTools
from interlock.domain.call import Question
from interlock.domain.decision import APPROVAL_SCOPES, ApprovalScope
from interlock.domain.payload import ExecutionEnvironment, FileOperand
from interlock.rendering.edit_diff import build_edit_diff, diff_texts
from interlock.server.console.views.drift import detect_question_drift
from interlock.server.console.views.question import UNFOLDED_LINES, build_approval_panel, has_same_payload
from interlock.server.core.identity.principal import Principal, Role
from tests.server.console.scenes import EDIT, REFUND
from tests.server.server_process import Call, Running, console_server, demo_agent

_replaced = msgspec.structs.replace
_lines = st.lists(st.text("abc<", max_size=2), max_size=12).map("\n".join)


def _question(**fields: Any) -> Question:
    given: dict[str, Any] = {
        "action_id": "act_1",
        "run_id": "run_1",
        "call_id": "c1",
        "tool_name": "refund",
        "kind": "approval",
        "prompt": "Run it?",
        "arguments": REFUND[1],
        "payload_hash": "sha256:1",
    }
    return Question(**(given | fields))


async def _asked(house: Running, call: Call = REFUND) -> Question:
    run_id = await house.begin("Do it.", call)
    (row,) = await house.questions(run_id)
    alex = Principal(name="user:alex", kind="person", roles=frozenset((Role.ADMIN,)))
    return (await house.service.run_queries.get_question(alex, row.action_id)).action.question


@pytest.mark.asyncio(loop_scope="session")
async def test_nothing_drifts_while_nothing_changes_and_what_changed_is_named(served: Running) -> None:
    question, fleet = await _asked(served), served.service.runners
    assert await detect_question_drift(question, fleet) == ()

    older = _replaced(question, bound=_replaced(question.bound, policy="sha256:old", tool_definition="sha256:old"))
    changed = await detect_question_drift(older, fleet)
    assert changed is not None
    assert [change.what for change in changed] == ["tool definition", "policy"]
    gone = await detect_question_drift(_replaced(question, tool_name="gone"), fleet)
    assert gone is not None
    assert [(change.what, change.now) for change in gone] == [("tool", "gone")]
    assert await detect_question_drift(_replaced(question, agent="elsewhere"), fleet) is None


@pytest.mark.asyncio(loop_scope="session")
async def test_a_file_that_changed_since_it_was_asked_about_is_named(tmp_path: Path) -> None:
    page = tmp_path / "work" / "page.html"
    page.parent.mkdir()
    page.write_text("old")
    local = demo_agent(tools=LocalTools(page.parent), policy=None)
    async with console_server(tmp_path / "state", agents=[local]) as served:
        question = await _asked(served, ("bash", {"command": "rm page.html"}))
        assert await detect_question_drift(question, served.service.runners) == ()

        page.write_text("new")

        changed = await detect_question_drift(question, served.service.runners)
        assert changed is not None
        assert [change.what for change in changed] == ["file page.html"]


def test_questions_are_the_same_only_when_all_but_run_call_and_time_is() -> None:
    one = _question()
    assert has_same_payload(one, _question(run_id="run_2", call_id="c9", action_id="act_2", payload_hash="sha256:2"))
    assert not has_same_payload(one, _question(arguments={**REFUND[1], "amount": 1}))
    assert not has_same_payload(one, _question(bound=_replaced(one.bound, policy="sha256:other")))
    assert not has_same_payload(one, _question(rule_ids=("other",)))
    assert not has_same_payload(one, _question(tool_name="refund_all"))
    assert not has_same_payload(one, _question(risk=("network",)))


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (0, False), ("a", "a\u200b"), ("\u00e9", "e\u0301"), ("a", "\u0430")]
)
def test_values_that_only_look_or_compare_alike_are_not_the_same(one: Any, other: Any) -> None:
    assert not has_same_payload(_question(arguments={"value": [one]}), _question(arguments={"value": [other]}))
    assert not has_same_payload(_question(arguments={f"{one}": 1}), _question(arguments={f"{other}": 1}))


def test_questions_about_other_files_are_not_the_same() -> None:
    one = _question()
    files = ExecutionEnvironment(files=(FileOperand("a.txt", sha256="1"),))
    assert not has_same_payload(one, _replaced(one, bound=_replaced(one.bound, surroundings=files)))


@given(st.integers(0, 300))
def test_every_line_is_shown_or_behind_the_fold_that_counts_it(count: int) -> None:
    shown = build_approval_panel(_question(arguments={"list": list(range(count))}))
    lines = [*shown.lines, *shown.rest]
    assert len(lines) == (count + 1 if count else 1)
    assert len(shown.lines) <= UNFOLDED_LINES
    assert shown.rest_chars == sum(len(line.text) for line in shown.rest)


def test_one_very_long_line_is_behind_the_fold() -> None:
    shown = build_approval_panel(_question(arguments={"text": "x" * 100_000}))
    assert (len(shown.lines), len(shown.rest)) == (0, 1)
    assert shown.rest_chars > 100_000


@pytest.mark.parametrize(("widest", "scopes"), [("once", 1), ("run", 2), ("window", 3), ("rule", 4)])
def test_a_yes_may_reach_as_far_as_the_rule_lets_it(widest: ApprovalScope, scopes: int) -> None:
    assert len(build_approval_panel(_question(scope=widest, suggested_rule="{}")).scopes) == scopes


@pytest.mark.parametrize("rule", ["", '{"tools":"a\u200bb"}', '{"tools":"\u202ea"}'])
def test_a_rule_that_cannot_be_read_exactly_is_not_offered(rule: str) -> None:
    scopes = build_approval_panel(_question(scope="rule", suggested_rule=rule)).scopes
    assert [scope for scope, _ in scopes] == ["once", "run", "window"]


def test_a_rule_with_quoted_text_is_offered() -> None:
    rule = '{"id":"kept-1","tools":"refund","arguments":{"note":{"is":"\\"caf\u00e9\\"\\n[x]"}}}'
    assert len(build_approval_panel(_question(scope="rule", suggested_rule=rule)).scopes) == len(APPROVAL_SCOPES)


@given(_lines, _lines)
def test_a_diff_has_every_line_of_both_texts_in_order(old: str, new: str) -> None:
    lines = list(diff_texts(old, new))
    for text, kind in ((old, "removed"), (new, "added")):
        kept = [line.text for line in lines if line.kind in ("same", kind)]
        assert kept == (text.removesuffix("\n").split("\n") if text else [])


def test_a_file_that_is_written_anew_says_whether_it_replaces_one() -> None:
    arguments = {"path": "a.txt", "content": "one\ntwo"}
    there, missing = FileOperand("/work/a.txt", sha256="1"), FileOperand("/work/a.txt")
    assert [diff.remark for file in (there, missing) if (diff := build_edit_diff(arguments, (file,)))] == [
        "It replaces all of the file that is there.",
        "There is no such file yet.",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 1, "content": "x"},
        {"path": "a", "edits": [1]},
        {"path": "a", "edits": [{"old_string": 1, "new_string": "b"}]},
        {"path": "a", "edits": []},
        {"path": "a", "content": "x" * 200_001},
        {"path": "a", "edits": [{"old_string": "a", "new_string": "b"}] * 101},
    ],
)
def test_arguments_of_something_else_have_no_diff(arguments: dict[str, Any]) -> None:
    assert build_edit_diff(arguments, ()) is None


def test_several_edits_are_shown_one_after_the_other() -> None:
    edits = {key: EDIT[1][key] for key in ("old_string", "new_string")}
    diff = build_edit_diff({"path": "a", "edits": [edits, edits]}, ())
    assert diff is not None
    assert (diff.added, diff.removed) == (4, 4)
    assert [line.text for line in diff.lines if line.kind == "place"] == ["edit 1 of 2", "edit 2 of 2"]
