"""Rendering of a question for a person: its subject, the whole payload, then the facts, so that no payload can hide
them.

Only our own lines begin at the first column. Text from elsewhere is written by `escape_invisible` behind a label, a
dash or a gutter; what does not fit a line is carried on behind `>`. So the tool, the arguments and the payload hash of
the question can be read back from the lines, which the tests do.

Nothing is left out: `rendering.prompt` has the short form, which counts what it hides.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.call import Question
from ..domain.payload import BindingChange, FileOperand
from ..domain.tool import JsonObject
from ..domain.trial import ChangeKind, Trial, TriedChange
from . import argument_outline as display_arguments
from .argument_outline import wrap_pieces
from .escaping import escape_invisible, find_text_warnings, visible_pieces
from .times import format_utc

MIN_WIDTH = 40
MAX_WIDTH = 200
_MAX_WARNINGS = 10

LineStyle: TypeAlias = Literal[
    "title", "label", "payload", "fact", "risk", "warning", "loud", "hash", "hint", "added", "removed"
]

_TITLES = {
    "approval": "May this call run?",
    "trial": "This call was tried. May its effect happen?",
    "input": "This call needs a value.",
    "consent": "This call needs a user's consent, which they give at the provider.",
}
_CONTINUATION = "  > "
#: By profile, what it leaves to a call.
_PROFILES = {
    "read-only": "it can change nothing that stays, and reach no host",
    "read-only+hosts": "it can change nothing that stays, and reach only hosts that rules or this call name",
    "read-only+network": "it can change nothing that stays; it can reach hosts",
    "workspace-write": "it can change the workspace only, and reach no host",
    "workspace-write+hosts": "it can change the workspace only, and reach only hosts that rules or this call name",
    "workspace-write+network": "it can change the workspace only; it can reach hosts",
}
#: As in `git status`; what cannot be kept is marked `!`.
CHANGE_SIGNS: dict[ChangeKind, str] = {"created": "A", "modified": "M", "deleted": "D", "mode": "M", "skipped": "!"}
#: The warning about a call that may run code of the workspace without naming it.
UNNAMED_CODE_WARNING = (
    "code of the workspace that this call does not name (imports, sourced files, hooks) may change until it runs"
)


class DisplayLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a display, with its style."""

    text: str
    style: LineStyle


class QuestionDisplay(msgspec.Struct, frozen=True):
    """The lines of a question, and how many are hidden."""

    lines: tuple[DisplayLine, ...]
    #: How many lines are not shown; what has any must not be approved.
    hidden_lines: int = 0


def render_question(question: Question, width: int) -> QuestionDisplay:
    """Render a question completely."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH) - 1  # The last column is where terminals differ.
    sections = (
        *_leading_sections(question, width),
        _payload_lines(question, width),
        *_trailing_sections(question, width),
    )
    return QuestionDisplay(tuple(line for section in sections for line in section))


def render_fact(label: str, value: str, width: int, style: LineStyle = "fact") -> list[DisplayLine]:
    """Render a label and untrusted text."""
    first, *others = wrap_pieces([*f"{label}: ", *visible_pieces(value)], width, width - len(_CONTINUATION))
    return [DisplayLine(first.rstrip(" "), style), *(DisplayLine(_CONTINUATION + row, style) for row in others)]


def render_facts(label: str, values: Iterable[str], width: int, style: LineStyle = "fact") -> list[DisplayLine]:
    """Render a label and one line for each text; nothing when there is none."""
    lines: list[DisplayLine] = []
    for value in values:
        first, *others = wrap_pieces(visible_pieces(value), width - 4, width - 4)
        lines += [
            DisplayLine(f"  - {first}".rstrip(" "), style),
            *(DisplayLine(_CONTINUATION + row, style) for row in others),
        ]
    return [DisplayLine(f"{label}:", style), *lines] if lines else []


def render_text(text: str, width: int, style: LineStyle = "hint") -> list[DisplayLine]:
    """Render trusted text."""
    first, *others = wrap_pieces(text, width, width - len(_CONTINUATION))
    return [DisplayLine(first, style), *(DisplayLine(_CONTINUATION + row, style) for row in others)]


def _leading_sections(question: Question, width: int) -> Iterator[list[DisplayLine]]:
    bound = question.bound
    yield render_text(_TITLES["trial" if question.trial is not None else question.kind], width, "title")
    if question.title:
        yield render_fact("title", question.title, width, "label")
    yield render_fact("tool", question.tool_name, width, "label")
    if bound.tool_origin != "local" or bound.tool_source:
        yield render_fact("from", f"{bound.tool_origin} {bound.tool_source}".strip(), width)
    if question.capability:
        yield render_fact("capability", question.capability, width)
    if bound.requester:
        yield render_fact("on behalf of", bound.requester, width)
    yield [DisplayLine("arguments:" if question.arguments else "arguments: none", "label")]


def _payload_lines(question: Question, width: int) -> list[DisplayLine]:
    return [DisplayLine(text, "payload") for text in display_arguments.write_outline(question.arguments, width)]


def _trailing_sections(question: Question, width: int) -> Iterator[list[DisplayLine]]:
    environment = question.bound.surroundings
    yield render_facts("key facts", (f"{fact.name}: {fact.value}" for fact in question.key_facts), width)
    yield render_fact("question", question.prompt, width)
    yield from _trial_sections(question.trial, width)
    if question.target_arg:
        yield render_fact("value for", question.target_arg, width)
    yield render_fact("asked by", question.layer or "the tool's declared risk", width)
    yield render_facts("rules", question.rule_ids, width)
    if question.reason:
        yield render_fact("reason", question.reason, width)
    yield render_facts("risk", question.risk, width, "risk")
    yield render_facts("changed since it was asked before", map(_describe_change, question.changes), width, "warning")
    yield render_facts("files, as they are now", map(_describe_file, environment.existing_files), width)
    yield render_facts("NOT fixed until it runs", map(_describe_unbound, environment.unbound_files), width, "warning")
    if environment.unnamed_code:
        yield render_fact("NOT bound", UNNAMED_CODE_WARNING, width, "warning")
    style = "warning" if environment.sandbox.startswith("none") else "fact"
    yield render_fact("sandbox", describe_sandbox(environment.sandbox), width, style)
    if environment.cwd:
        yield render_fact("working directory", environment.cwd, width)
    yield render_facts("environment", (f"{name}={value}" for name, value in environment.environment.items()), width)
    yield render_fact("expires", format_utc(question.expires_at) if question.expires_at else "never", width)
    yield render_facts("WARNINGS", find_warnings(question), width, "warning")
    yield render_fact("hash", question.payload_hash, width, "hash")


def _trial_sections(trial: Trial | None, width: int) -> Iterator[list[DisplayLine]]:
    if trial is None:
        return
    yield render_fact("tried", summarize_trial(trial), width, "label")
    changes = (f"{CHANGE_SIGNS[change.kind]} {describe_tried_change(change)}" for change in trial.changes)
    yield render_facts("changes", changes, width)
    yield render_facts("tried to reach", trial.hosts, width, "warning")
    yield render_facts("diff", trial.diff.split("\n") if trial.diff else (), width)
    if trial.is_diff_cut:
        yield render_text("the diff is cut here: not all of it is shown", width, "loud")
    yield render_facts("it printed", trial.output.strip("\n").split("\n") if trial.output.strip() else (), width)
    yield render_fact("effect", trial.digest, width, "hash")


def summarize_trial(trial: Trial) -> str:
    """Return how a trial ended and how much it would change, in one line."""
    count = trial.change_count
    changed = f"{count:,} file{'s' if count != 1 else ''} would change" if count else "nothing would change"
    hosts = f"; tried to reach {', '.join(trial.hosts)}, which a trial cannot" if trial.hosts else ""
    more = count - sum(change.kind != "skipped" for change in trial.changes)
    return f"{trial.outcome}; {changed}{f' ({more:,} are not listed)' if more > 0 else ''}{hosts}"


def describe_tried_change(change: TriedChange) -> str:
    """Return a changed path with its detail."""
    return f"{change.path} ({change.detail})" if change.detail else change.path


def describe_sandbox(sandbox: str) -> str:
    """Return a description of a sandbox and its profile for a person."""
    backend, _, profile = sandbox.partition("/")
    if backend == "none":
        return f"{sandbox}: it runs with everything that this process may do"
    meaning = _PROFILES.get(profile)
    return f"{sandbox}: {meaning}" if meaning else sandbox


def _describe_change(change: BindingChange) -> str:
    return f"{change.what}: was {change.was or 'empty'}, now {change.now or 'empty'}"


def _describe_file(file: FileOperand) -> str:
    return f"{file.path} (sha256 {file.sha256})"


def _describe_unbound(file: FileOperand) -> str:
    return f"{file.path}: {file.unbound}"


def find_warnings(question: Question) -> list[str]:
    """Return the warnings that a person should see."""
    found = [f"the tool's name {warning}" for warning in find_text_warnings(question.tool_name)]
    found += [
        f"{escape_invisible(key[:40])} {warning}"
        for key, value in question.arguments.items()
        for warning in dict.fromkeys(w for text in (key, *_walk_texts(value)) for w in find_text_warnings(text))
    ]
    more = len(found) - _MAX_WARNINGS
    return found if more <= 0 else [*found[:_MAX_WARNINGS], f"{more:,} more like these"]


def _walk_texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            left += [*cast(JsonObject, inner), *cast(JsonObject, inner).values()]
        elif isinstance(inner, list):
            left += cast(list[Any], inner)
