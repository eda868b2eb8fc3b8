"""A question as a page shows it: all that would run first, then the facts, as in the terminal (see `rendering`).

What is long is not cut in silence: lines over a limit are in the page, folded, with how many they are, and the page
does not let anybody approve before they were unfolded.
"""

import re
from collections.abc import Iterator
from json import dumps
from typing import Literal, TypeAlias

import msgspec

from ....domain import json
from ....domain.call import Question
from ....domain.decision import SCOPES, Scope
from ....domain.payload import Change, FileOperand
from ....domain.tool import JsonObject
from ....rendering.question import UNNAMED_CODE, held_back, warnings_about
from ....rendering.visible import visible
from ..markup import OutlineLine, outline
from .edit_diff import EditDiff, edit_diff

OPEN_LINES = 80
OPEN_CHARS = 6_000

Tone: TypeAlias = Literal["", "wait", "bad"]
_SCOPE_WORDS: dict[Scope, str] = {
    "once": "this call only",
    "run": "the same call again in this run",
    "window": "the same call again for a time",
    "rule": "and keep a rule for the next time",
}
#: What stands for arguments with secrets.
_REDACTED = {"redacted"}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class Fact(msgspec.Struct, frozen=True):
    label: str
    values: tuple[str, ...]
    tone: Tone = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    lines: list[OutlineLine]
    #: Behind a fold.
    rest: list[OutlineLine]
    rest_chars: int
    diff: EditDiff | None
    facts: tuple[Fact, ...]
    warnings: tuple[str, ...]
    scopes: tuple[tuple[Scope, str], ...]
    #: The arguments to be edited; empty where they hold secrets, which are not in the log and cannot be shown.
    text: str


def question_view(question: Question) -> Shown:
    lines = outline(question.arguments)
    kept = _open_lines(lines)
    rest = lines[kept:]
    return Shown(
        lines=lines[:kept],
        rest=rest,
        rest_chars=sum(len(line.text) for line in rest),
        diff=edit_diff(question.arguments, question.bound.surroundings.files),
        facts=tuple(fact for fact in _facts(question) if fact.values),
        warnings=tuple(warnings_about(question)),
        scopes=tuple((scope, _SCOPE_WORDS[scope]) for scope in _scopes(question)),
        text="" if question.arguments.keys() == _REDACTED else editable(question.arguments),
    )


def editable(arguments: JsonObject) -> str:
    """JSON to be edited by a person, in which every character that nobody would see is an escape."""
    text = dumps(arguments, ensure_ascii=False, indent=2)
    return _NOT_ASCII.sub(lambda match: match[0] if visible(match[0]) == match[0] else dumps(match[0])[1:-1], text)


def same_payload(one: Question, other: Question) -> bool:
    """Are they about the same thing, in all but the run, the call and the time?"""
    return _payload(one) == _payload(other)


def change_words(change: Change) -> str:
    return f"{change.what}: was {change.was or 'empty'}, now {change.now or 'empty'}"


def _payload(question: Question) -> tuple[object, ...]:
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


def _scopes(question: Question) -> list[Scope]:
    """How far a yes may reach. A rule is kept as it is read, so one with characters that nobody would see is not
    offered."""
    rule = question.suggested_rule
    is_readable = bool(rule) and all(visible(line) == line for line in rule.replace("\\", "").split("\n"))
    return [each for each in SCOPES[: SCOPES.index(question.scope) + 1] if each != "rule" or is_readable]


def _open_lines(lines: list[OutlineLine]) -> int:
    """How many are shown without being asked for."""
    chars = 0
    for at, line in enumerate(lines):
        chars += len(line.text)
        if chars > OPEN_CHARS or at >= OPEN_LINES:
            return at
    return len(lines)


def _facts(question: Question) -> Iterator[Fact]:
    bound, around = question.bound, question.bound.surroundings
    yield Fact("Value for", (question.target_arg,) if question.target_arg else ())
    yield Fact("Arguments edited by", (question.edited_by,) if question.edited_by else (), "wait")
    yield Fact("Deciding rule", question.rule_ids)
    yield Fact("Asked by", (question.layer or "the tool's declared risk",))
    yield Fact("Reason", (question.reason,) if question.reason else ())
    yield Fact("Permission mode", (bound.mode,))
    is_local = bound.tool_origin == "local" and not bound.tool_source
    yield Fact("Tool comes from", () if is_local else (f"{bound.tool_origin} {bound.tool_source}".strip(),))
    yield Fact("Tool version", (bound.tool_version,) if bound.tool_version else ())
    yield Fact("Files, as they were", tuple(_file(file) for file in around.files if not file.unbound))
    yield Fact("NOT held fast until it runs", tuple(f"{file.path}: {file.unbound}" for file in around.unbound), "wait")
    yield Fact("NOT bound", (UNNAMED_CODE,) if around.unnamed_code else (), "wait")
    yield Fact("Sandbox", (held_back(around.sandbox),), "wait" if around.sandbox.startswith("none") else "")
    yield Fact("Working directory", (around.cwd,) if around.cwd else ())
    yield Fact("Environment", tuple(f"{name}={value}" for name, value in around.environment.items()))


def _file(file: FileOperand) -> str:
    return f"{file.path} ({f'sha256 {file.sha256}' if file.sha256 else 'does not exist'})"
