"""One call as the page shows it: three views, with arguments and diffs as lines."""

from typing import Any, cast

import msgspec

from ....domain.json import JsonObject
from ....history.call_view import CallView, InvocationView, QuestionView
from ....rendering.edit_diff import DiffLine, EditDiff, build_edit_diff, diff_json, parse_unified_diff
from ..markup import OutlineLine, build_outline
from .events import format_json


class QuestionPanel(msgspec.Struct, frozen=True, kw_only=True):
    """A question about the call."""

    asked: QuestionView
    arguments: list[OutlineLine]
    #: What it would do to a file, where its arguments say that.
    edit: EditDiff | None
    #: What the person wrote instead, against what they were asked about.
    edited: list[DiffLine]
    value: list[OutlineLine]


class InvocationPanel(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the call."""

    ran: InvocationView
    arguments: list[OutlineLine]
    #: What ran, against what the model wrote; nothing where it is the same.
    changed: list[DiffLine]


class CallPanel(msgspec.Struct, frozen=True, kw_only=True):
    """Everything shown about a call."""

    view: CallView
    proposed: list[OutlineLine]
    result: list[str] | None
    questions: list[QuestionPanel]
    runs: list[InvocationPanel]
    #: The outcome, where it is a diff; else its text.
    diff: list[DiffLine]
    output: list[str]
    facts: list[OutlineLine]
    effects: list[JsonObject] | str
    raw: str


def build_call_panel(view: CallView) -> CallPanel:
    """Build everything that the page shows about a call."""
    observation = view.execution.observation
    content = None if observation is None else observation.content
    is_diff = content is not None and content.format == "diff"
    effects = () if observation is None else observation.side_effects
    return CallPanel(
        view=view,
        proposed=outline_value(view.model_view.arguments),
        result=None if view.model_view.result is None else view.model_view.result.split("\n"),
        questions=[_build_question_panel(asked) for asked in view.person_view.questions],
        runs=[_build_invocation_panel(view, ran) for ran in view.execution.invocations],
        diff=parse_unified_diff(content.text) if content is not None and is_diff else [],
        output=content.text.split("\n") if content is not None and not is_diff else [],
        facts=[] if observation is None else build_outline(observation.facts),
        effects=effects if isinstance(effects, str) else [msgspec.structs.asdict(each) for each in effects],
        raw=format_json(msgspec.to_builtins(view, str_keys=True)),
    )


def _build_question_panel(asked: QuestionView) -> QuestionPanel:
    answer, arguments = asked.answer, asked.question.arguments
    edited = None if answer is None else answer.arguments
    value = None if answer is None else answer.value
    return QuestionPanel(
        asked=asked,
        arguments=build_outline(arguments),
        edit=build_edit_diff(arguments, asked.question.bound.surroundings.files),
        edited=[] if edited is None else diff_json(arguments, edited),
        value=[] if value is None else build_outline({"value": value}),
    )


def _build_invocation_panel(view: CallView, invocation: InvocationView) -> InvocationPanel:
    changed = (
        diff_json(view.model_view.arguments, invocation.arguments) if view.model_view.arguments is not None else []
    )
    return InvocationPanel(ran=invocation, arguments=outline_value(invocation.arguments), changed=changed)


def outline_value(value: Any) -> list[OutlineLine]:
    """Return arguments as an outline, whatever they are; nothing for none."""
    if value is None:
        return []
    return build_outline(cast(JsonObject, value) if isinstance(value, dict) else {"text": value})
