"""One call as the page shows it: the three lenses, with arguments and diffs as lines."""

from typing import Any, cast

import msgspec

from ....domain.json import JsonObject
from ....history.call_view import Asked, CallView, Ran
from ..markup import OutlineLine, outline
from .diff import changed_lines, diff_lines
from .edit_diff import DiffLine, EditDiff, edit_diff
from .event import pretty


class QuestionShown(msgspec.Struct, frozen=True, kw_only=True):
    asked: Asked
    arguments: list[OutlineLine]
    #: What it would do to a file, where its arguments say that.
    edit: EditDiff | None
    #: What the person wrote instead, against what they were asked about.
    edited: list[DiffLine]
    value: list[OutlineLine]


class RanShown(msgspec.Struct, frozen=True, kw_only=True):
    ran: Ran
    arguments: list[OutlineLine]
    #: What ran, against what the model wrote; nothing where it is the same.
    changed: list[DiffLine]


class CallShown(msgspec.Struct, frozen=True, kw_only=True):
    view: CallView
    proposed: list[OutlineLine]
    told: list[str] | None
    questions: list[QuestionShown]
    runs: list[RanShown]
    #: The outcome, where it is a diff; else its text.
    diff: list[DiffLine]
    output: list[str]
    facts: list[OutlineLine]
    effects: list[JsonObject] | str
    raw: str


def call_shown(view: CallView) -> CallShown:
    observation = view.happened.observation
    content = None if observation is None else observation.content
    is_diff = content is not None and content.format == "diff"
    effects = () if observation is None else observation.side_effects
    return CallShown(
        view=view,
        proposed=_outline(view.model_saw.arguments),
        told=None if view.model_saw.told is None else view.model_saw.told.split("\n"),
        questions=[_question(asked) for asked in view.person_saw.questions],
        runs=[_ran(view, ran) for ran in view.happened.runs],
        diff=diff_lines(content.text) if content is not None and is_diff else [],
        output=content.text.split("\n") if content is not None and not is_diff else [],
        facts=[] if observation is None else outline(observation.facts),
        effects=effects if isinstance(effects, str) else [msgspec.structs.asdict(each) for each in effects],
        raw=pretty(msgspec.to_builtins(view, str_keys=True)),
    )


def _question(asked: Asked) -> QuestionShown:
    answer, arguments = asked.answer, asked.question.arguments
    edited = None if answer is None else answer.arguments
    value = None if answer is None else answer.value
    return QuestionShown(
        asked=asked,
        arguments=outline(arguments),
        edit=edit_diff(arguments, asked.question.bound.surroundings.files),
        edited=[] if edited is None else changed_lines(arguments, edited),
        value=[] if value is None else outline({"value": value}),
    )


def _ran(view: CallView, ran: Ran) -> RanShown:
    changed = changed_lines(view.model_saw.arguments, ran.arguments) if view.model_saw.arguments is not None else []
    return RanShown(ran=ran, arguments=_outline(ran.arguments), changed=changed)


def _outline(value: Any) -> list[OutlineLine]:
    if value is None:
        return []
    return outline(cast(JsonObject, value) if isinstance(value, dict) else {"text": value})
