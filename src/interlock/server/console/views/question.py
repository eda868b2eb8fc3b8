"""A question as a page shows it: the whole payload first, then the facts, as in the terminal (see `rendering`).

Long content is not cut silently: lines over a limit are in the page, folded, with their number, and the page does not
allow an approval before they were unfolded.
"""

import re
from collections.abc import Iterator
from json import dumps
from typing import Literal, TypeAlias

import msgspec

from ....domain import json
from ....domain.call import Question
from ....domain.decision import APPROVAL_SCOPES, ApprovalScope
from ....domain.payload import BindingChange
from ....domain.tool import JsonObject
from ....domain.trial import ChangeKind, Trial
from ....history.call_view import CallView
from ....rendering.edit_diff import DiffLine, EditDiff, build_edit_diff, parse_unified_diff
from ....rendering.escaping import escape_invisible
from ....rendering.question import (
    CHANGE_SIGNS,
    UNNAMED_CODE_WARNING,
    describe_sandbox,
    describe_tried_change,
    find_warnings,
    summarize_trial,
)
from ..markup import OutlineLine, build_outline

UNFOLDED_LINES = 80
UNFOLDED_CHARS = 6_000
#: Of the result of an answered call; the page of the run has all of it.
_RESULT_LINES = 40
_RESULT_CHARS = 4_000

FactTone: TypeAlias = Literal["", "warning", "danger"]
_SCOPE_LABELS: dict[ApprovalScope, str] = {
    "once": "this call only",
    "run": "the same call again in this run",
    "window": "the same call again for a time",
    "rule": "always, by a rule for calls of this kind",
}
#: What stands for arguments with secrets.
_REDACTED_KEYS = {"redacted"}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class QuestionFact(msgspec.Struct, frozen=True):
    """A fact about a question."""

    label: str
    values: tuple[str, ...]
    tone: FactTone = ""


class TrialPanel(msgspec.Struct, frozen=True):
    """What a call did in its trial."""

    summary: str
    #: Sign, kind and words of each change.
    changes: tuple[tuple[str, ChangeKind, str], ...]
    diff: list[DiffLine]
    is_diff_cut: bool
    output: str


class ApprovalPanel(msgspec.Struct, frozen=True, kw_only=True):
    """Everything shown about a question."""

    lines: list[OutlineLine]
    #: Behind a fold.
    rest: list[OutlineLine]
    rest_chars: int
    diff: EditDiff | None
    trial: "TrialPanel | None"
    facts: tuple[QuestionFact, ...]
    warnings: tuple[str, ...]
    scopes: tuple[tuple[ApprovalScope, str], ...]
    #: The arguments to be edited; empty where they hold secrets, which are not in the log and cannot be shown.
    text: str


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call after its question was answered."""

    call_id: str
    is_running: bool
    #: None: it has no outcome yet.
    is_ok: bool | None
    summary: str
    diff: list[DiffLine]
    output: str
    is_cut: bool


def build_call_result(view: CallView) -> CallResult:
    """Build the result of a call: the line about its outcome, and the first lines of what it returned."""
    observation, invocations = view.execution.observation, view.execution.invocations
    content = None if observation is None else observation.content
    text = "" if content is None else content.text
    lines = text[:_RESULT_CHARS].split("\n")
    shown = "\n".join(lines[:_RESULT_LINES])
    is_diff = content is not None and content.format == "diff"
    return CallResult(
        call_id=view.call_id,
        is_running=observation is None and bool(invocations) and invocations[-1].ended is None,
        is_ok=None if observation is None else observation.ok,
        summary=view.person_view.summary,
        diff=parse_unified_diff(shown) if is_diff else [],
        output="" if is_diff else shown.strip("\n"),
        is_cut=len(shown) < len(text),
    )


def build_approval_panel(question: Question) -> ApprovalPanel:
    """Build everything that the page shows about a question."""
    lines = build_outline(question.arguments)
    unfolded = _count_unfolded(lines)
    rest = lines[unfolded:]
    return ApprovalPanel(
        lines=lines[:unfolded],
        rest=rest,
        rest_chars=sum(len(line.text) for line in rest),
        diff=build_edit_diff(question.arguments, question.bound.surroundings.files),
        trial=None if question.trial is None else _build_trial_panel(question.trial),
        facts=tuple(fact for fact in _list_facts(question) if fact.values),
        warnings=tuple(find_warnings(question)),
        scopes=tuple((scope, _SCOPE_LABELS[scope]) for scope in _list_scopes(question)),
        text="" if question.arguments.keys() == _REDACTED_KEYS else to_editable_json(question.arguments),
    )


def _build_trial_panel(trial: Trial) -> TrialPanel:
    return TrialPanel(
        summary=summarize_trial(trial),
        changes=tuple(
            (CHANGE_SIGNS[change.kind], change.kind, describe_tried_change(change)) for change in trial.changes
        ),
        diff=parse_unified_diff(trial.diff),
        is_diff_cut=trial.is_diff_cut,
        output=trial.output.strip("\n"),
    )


def to_editable_json(arguments: JsonObject) -> str:
    """Return JSON for editing, in which every invisible character is escaped."""
    text = dumps(arguments, ensure_ascii=False, indent=2)
    return _NOT_ASCII.sub(
        lambda match: match[0] if escape_invisible(match[0]) == match[0] else dumps(match[0])[1:-1], text
    )


def has_same_payload(one: Question, other: Question) -> bool:
    """Return True if both are about the same thing, in all but the run, the call and the time."""
    return _comparable_payload(one) == _comparable_payload(other)


def describe_change(change: BindingChange) -> str:
    """Describe what changed since the question was asked."""
    return f"{change.what}: was {change.was or 'empty'}, now {change.now or 'empty'}"


def _comparable_payload(question: Question) -> tuple[object, ...]:
    return (
        question.kind,
        question.agent,
        question.tool_name,
        # As text: in Python, 1 is equal to true.
        json.encode_sorted(question.arguments),
        question.bound,
        question.rule_ids,
        question.layer,
        question.risk,
        question.scope,
    )


def _list_scopes(question: Question) -> list[ApprovalScope]:
    """Return the possible scopes of an approval. A rule with invisible characters is not offered."""
    rule = question.suggested_rule
    is_readable = bool(rule) and all(escape_invisible(line) == line for line in rule.replace("\\", "").split("\n"))
    return [
        each for each in APPROVAL_SCOPES[: APPROVAL_SCOPES.index(question.scope) + 1] if each != "rule" or is_readable
    ]


def _count_unfolded(lines: list[OutlineLine]) -> int:
    """Count the lines that are shown unfolded."""
    chars = 0
    for at, line in enumerate(lines):
        chars += len(line.text)
        if chars > UNFOLDED_CHARS or at >= UNFOLDED_LINES:
            return at
    return len(lines)


def _list_facts(question: Question) -> Iterator[QuestionFact]:
    bound, environment = question.bound, question.bound.surroundings
    yield QuestionFact("Value for", (question.target_arg,) if question.target_arg else ())
    yield QuestionFact("Arguments edited by", (question.edited_by,) if question.edited_by else (), "warning")
    if question.trial is not None:
        yield QuestionFact("Tried to reach", question.trial.hosts, "warning")
        yield QuestionFact("Effect", (question.trial.digest,))
    yield QuestionFact("Deciding rule", question.rule_ids)
    yield QuestionFact("Asked by", (question.layer or "the tool's declared risk",))
    yield QuestionFact("Reason", (question.reason,) if question.reason else ())
    yield QuestionFact("Permission mode", (bound.mode,))
    is_local = bound.tool_origin == "local" and not bound.tool_source
    yield QuestionFact("Tool comes from", () if is_local else (f"{bound.tool_origin} {bound.tool_source}".strip(),))
    yield QuestionFact("Tool version", (bound.tool_version,) if bound.tool_version else ())
    files = tuple(f"{file.path} (sha256 {file.sha256})" for file in environment.existing_files)
    yield QuestionFact("Files, as they were", files)
    yield QuestionFact(
        "NOT bound until it runs",
        tuple(f"{file.path}: {file.unbound}" for file in environment.unbound_files),
        "warning",
    )
    yield QuestionFact("NOT bound", (UNNAMED_CODE_WARNING,) if environment.unnamed_code else (), "warning")
    yield QuestionFact(
        "Sandbox", (describe_sandbox(environment.sandbox),), "warning" if environment.sandbox.startswith("none") else ""
    )
    yield QuestionFact("Working directory", (environment.cwd,) if environment.cwd else ())
    yield QuestionFact("Environment", tuple(f"{name}={value}" for name, value in environment.environment.items()))
