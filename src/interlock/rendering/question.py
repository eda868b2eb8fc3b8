"""A question as lines for a person: what it is, all that would run, then the facts, so that no payload can hide them.

Only our own lines begin at the first column. Text from elsewhere is written by `visible` and stands behind a label, a
dash or a gutter; what does not fit a line is carried on behind `>`. So the lines read back: `parse(render(q).lines)`
is the tool, the arguments and the payload hash of the question.

Nothing is left out in silence. With a limit, what is over it is a loud line, and the display counts what it hides.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.call import Question
from ..domain.payload import Change, FileOperand
from ..domain.tool import JsonObject
from ..rendering import arguments as display_arguments
from .arguments import wrap
from .visible import pieces, unseen, visible, warnings

MIN_WIDTH = 40
MAX_WIDTH = 200
#: With a limit on the payload, every other fact is cut to so many lines.
FACT_LINES = 12
_MAX_WARNINGS = 10

Style: TypeAlias = Literal["title", "label", "payload", "fact", "risk", "warning", "loud", "hash", "hint"]

_TITLES = {
    "approval": "May this call run?",
    "input": "This call needs a value.",
    "consent": "This call needs a user's consent, which they give at the provider.",
}
_CARRIED_ON = "  > "
#: By profile, what it leaves to a call.
_PROFILES = {
    "read-only": "it can change nothing that stays, and reach no host",
    "read-only+network": "it can change nothing that stays; it can reach hosts",
    "workspace-write": "it can change the workspace only, and reach no host",
    "workspace-write+network": "it can change the workspace only; it can reach hosts",
}
#: What a person is told about a call that may run code of the workspace without naming it.
UNNAMED_CODE = (
    "code of the workspace that this call does not name (imports, sourced files, hooks) may change until it runs"
)
_CUT = "[... "
_GUTTER = re.compile(r"^ *(?:[|>-] ?)?")


class Line(msgspec.Struct, frozen=True, gc=False):
    text: str
    style: Style


class Display(msgspec.Struct, frozen=True):
    lines: tuple[Line, ...]
    #: How many lines are not shown; what has any must not be approved.
    hidden_lines: int = 0


class Shown(msgspec.Struct, frozen=True):
    """What a display says would run."""

    tool_name: str
    arguments: JsonObject
    payload_hash: str


def render(question: Question, width: int, payload_lines: int | None = None) -> Display:
    """All of it, or up to so many lines of the payload and a loud line about the rest."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH) - 1  # The last column is where terminals differ.
    fact_lines = None if payload_lines is None else FACT_LINES
    shown, hidden = list[Line](), 0
    for section in _before(question, width):
        hidden += _add(shown, section, fact_lines, width)
    hidden += _add(shown, _payload(question, width), payload_lines, width)
    for section in _after(question, width):
        hidden += _add(shown, section, fact_lines, width)
    return Display(tuple(shown), hidden)


def parse(lines: Iterable[Line | str]) -> Shown:
    """What the lines of a display say. `ValueError` when they are none, or do not show everything."""
    texts = [line if isinstance(line, str) else line.text for line in lines]
    if any(text.startswith(_CUT) for text in texts):
        raise ValueError("not everything is shown")
    sections = {label: (value, rest) for label, value, rest in _sections(texts)}
    try:
        tool, arguments, payload_hash = (sections[label] for label in ("tool", "arguments", "hash"))
    except KeyError as missing:
        raise ValueError(f"it shows no {missing.args[0]}") from None
    return Shown(
        tool_name=unseen(_joined(*tool)),
        arguments=display_arguments.read(arguments[1]),
        payload_hash=unseen(_joined(*payload_hash)),
    )


def fact(label: str, value: str, width: int, style: Style = "fact") -> list[Line]:
    """A label and text from anywhere."""
    first, *others = wrap([*f"{label}: ", *pieces(value)], width, width - len(_CARRIED_ON))
    return [Line(first.rstrip(" "), style), *(Line(_CARRIED_ON + row, style) for row in others)]


def facts(label: str, values: Iterable[str], width: int, style: Style = "fact") -> list[Line]:
    """A label and one line for each text; nothing at all when there is none."""
    lines: list[Line] = []
    for value in values:
        first, *others = wrap(pieces(value), width - 4, width - 4)
        lines += [Line(f"  - {first}".rstrip(" "), style), *(Line(_CARRIED_ON + row, style) for row in others)]
    return [Line(f"{label}:", style), *lines] if lines else []


def words(text: str, width: int, style: Style = "hint") -> list[Line]:
    """Our own words."""
    first, *others = wrap(text, width, width - len(_CARRIED_ON))
    return [Line(first, style), *(Line(_CARRIED_ON + row, style) for row in others)]


def _before(question: Question, width: int) -> Iterator[list[Line]]:
    bound = question.bound
    yield words(_TITLES[question.kind], width, "title")
    yield fact("tool", question.tool_name, width, "label")
    if bound.tool_origin != "local" or bound.tool_source:
        yield fact("from", f"{bound.tool_origin} {bound.tool_source}".strip(), width)
    if question.capability:
        yield fact("capability", question.capability, width)
    if bound.requester:
        yield fact("on behalf of", bound.requester, width)
    yield [Line("arguments:" if question.arguments else "arguments: none", "label")]


def _payload(question: Question, width: int) -> list[Line]:
    return [Line(text, "payload") for text in display_arguments.write(question.arguments, width)]


def _after(question: Question, width: int) -> Iterator[list[Line]]:
    around = question.bound.surroundings
    yield fact("question", question.prompt, width)
    if question.target_arg:
        yield fact("value for", question.target_arg, width)
    yield fact("asked by", question.layer or "the tool's declared risk", width)
    yield facts("rules", question.rule_ids, width)
    if question.reason:
        yield fact("reason", question.reason, width)
    yield facts("risk", question.risk, width, "risk")
    yield facts("changed since it was asked before", map(_change, question.changes), width, "warning")
    yield facts("files, as they are now", (_file(file) for file in around.files if not file.unbound), width)
    yield facts("NOT held fast until it runs", map(_unbound, around.unbound), width, "warning")
    if around.unnamed_code:
        yield fact("NOT bound", UNNAMED_CODE, width, "warning")
    yield fact("sandbox", held_back(around.sandbox), width, "warning" if around.sandbox.startswith("none") else "fact")
    if around.cwd:
        yield fact("working directory", around.cwd, width)
    yield facts("environment", (f"{name}={value}" for name, value in around.environment.items()), width)
    yield fact("expires", _time(question.expires_at), width)
    yield facts("WARNINGS", warnings_about(question), width, "warning")
    yield fact("hash", question.payload_hash, width, "hash")


def _add(shown: list[Line], section: list[Line], limit: int | None, width: int) -> int:
    """Adds the section, or its beginning and a loud line. How many lines are missing?"""
    if limit is None or len(section) <= limit:
        shown += section
        return 0
    missing = section[limit:]
    chars = sum(len(_GUTTER.sub("", line.text)) for line in missing)
    shown += section[:limit]
    text = f"{len(missing):,} lines ({chars:,} characters) NOT SHOWN: press v to see all; it cannot be approved before]"
    shown += words(_CUT + text, width, "loud")
    return len(missing)


def held_back(sandbox: str) -> str:
    """What a sandbox and its profile mean for a person."""
    backend, _, profile = sandbox.partition("/")
    if backend == "none":
        return f"{sandbox}: it runs with everything that this process may do"
    meaning = _PROFILES.get(profile)
    return f"{sandbox}: {meaning}" if meaning else sandbox


def _change(change: Change) -> str:
    return f"{change.what}: was {change.was or 'empty'}, now {change.now or 'empty'}"


def _file(file: FileOperand) -> str:
    return f"{file.path} ({f'sha256 {file.sha256}' if file.sha256 else 'does not exist'})"


def _unbound(file: FileOperand) -> str:
    return f"{file.path}: {file.unbound}"


def _time(at: int) -> str:
    if not at:
        return "never"
    try:
        return f"{datetime.fromtimestamp(at // 1_000_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at} nanoseconds after 1970"


def warnings_about(question: Question) -> list[str]:
    """What a person should know before trusting their eyes."""
    found = [f"the tool's name {warning}" for warning in warnings(question.tool_name)]
    found += [
        f"{visible(key[:40])} {warning}"
        for key, value in question.arguments.items()
        for warning in dict.fromkeys(w for text in (key, *_texts(value)) for w in warnings(text))
    ]
    more = len(found) - _MAX_WARNINGS
    return found if more <= 0 else [*found[:_MAX_WARNINGS], f"{more:,} more like these"]


def _texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            left += [*cast(JsonObject, inner), *cast(JsonObject, inner).values()]
        elif isinstance(inner, list):
            left += cast(list[Any], inner)


def _sections(texts: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Each label with what follows it on its line, and the lines below that do not begin at the first column."""
    section: tuple[str, str, list[str]] | None = None
    for text in texts:
        if text.startswith(" "):
            if section is not None:
                section[2].append(text)
            continue
        if section is not None:
            yield section
        label, _, value = text.partition(":")
        section = (label, value, [])
    if section is not None:
        yield section


def _joined(value: str, rest: list[str]) -> str:
    return (value + "".join(text.removeprefix(_CARRIED_ON) for text in rest)).removeprefix(" ")
