"""The short form of a question for a terminal: who asks and why, then what would run, cut to the window.

Everything else is on request, in the full form of `rendering.question`. As there, only our own lines begin at the first
column, and text from elsewhere is written by `escape_invisible` behind a gutter or a label. Nothing is left out in
silence: a line that is cut ends with an ellipsis, and what does not fit the window is counted.
"""

from collections.abc import Iterator
from itertools import chain
from os.path import expanduser
from typing import cast

from ..domain.call import Question
from ..domain.tool import JsonObject, Risk
from ..domain.trial import ChangeKind, Trial
from .argument_outline import MAX_TEXT_INDENT, cell_width, wrap_pieces, write_outline
from .edit_diff import EditDiff, build_edit_diff, parse_unified_diff
from .escaping import MAX_PIECE_CELLS, visible_pieces
from .question import (
    CHANGE_SIGNS,
    MAX_WIDTH,
    MIN_WIDTH,
    DisplayLine,
    LineStyle,
    QuestionDisplay,
    describe_tried_change,
    find_warnings,
    summarize_trial,
)
from .text import shorten_line

COMMAND_TOOLS = frozenset({"bash", "bash_outside"})
EDIT_TOOLS = frozenset({"edit_file", "write_file"})
#: Lines that the window needs beside those of the prompt: an empty one above, the choices, and one to answer on.
_RESERVED_LINES = 3
_MIN_BODY_LINES = 2
_MAX_NAME_CELLS, _MAX_FOLDER_CELLS = 24, 26
_MAX_WARNINGS = 2
_GUTTER = 4
_SANDBOXES = {
    "read-only": "read-only, no network",
    "read-only+hosts": "read-only, named hosts",
    "read-only+network": "read-only, with network",
    "workspace-write": "sandboxed, no network",
    "workspace-write+hosts": "sandboxed, named hosts",
    "workspace-write+network": "sandboxed, with network",
}
_SIGN_STYLES: dict[str, LineStyle] = {"+": "added", "-": "removed", "@": "hint", " ": "payload"}
_CHANGE_STYLES: dict[ChangeKind, LineStyle] = {"created": "added", "deleted": "removed", "skipped": "warning"}
#: Risk facts that are said elsewhere in the prompt, or only in the details.
_MINOR_RISKS = ("sandbox: ", "output is cut at ")


def render_prompt(question: Question, width: int, height: int, old_content: str | None = None) -> QuestionDisplay:
    """Render the short form of a question for a window of this size.

    Args:
        old_content: All of the file that the call would replace, where it is known.
    """
    width = min(max(width, MIN_WIDTH), MAX_WIDTH) - 1  # The last column is where terminals differ.
    is_named = bool(question.title) and not question.title.startswith(f"{question.tool_name}: ")
    head = [
        *([DisplayLine(_fit(_squeeze(question.title), width), "title")] if is_named else ()),
        DisplayLine(_fit(_describe_context(question), width), "title"),
        DisplayLine(_fit(f"asked: {_squeeze(question.reason or question.prompt)}", width), "fact"),
    ]
    notes = [DisplayLine(_fit(text, width), "warning") for text in _list_notes(question)]
    most = max(1, height - len(head) - _MIN_BODY_LINES - _RESERVED_LINES)
    if len(notes) > most:
        notes[most - 1 :] = [DisplayLine(f"warning: {len(notes) - most + 1:,} more, press d", "warning")]
    body = list(_body_lines(question, width, old_content))
    room = max(_MIN_BODY_LINES, height - len(head) - len(notes) - _RESERVED_LINES)
    hidden = 0
    if len(body) > room:
        hidden = len(body) - (room - 1)
        more = f"... {hidden:,} more line{'s' if hidden > 1 else ''}, press d"
        body = [*body[: room - 1], DisplayLine(more, "loud")]
    return QuestionDisplay((*head, *body, *notes), hidden)


def get_command(question: Question) -> str | None:
    """Return the script that a call of a built-in command tool would run; None for other calls."""
    command = question.arguments.get("command") if _is_built_in(question, COMMAND_TOOLS) else None
    return command if isinstance(command, str) else None


def find_edit_diff(question: Question, old_content: str | None = None) -> EditDiff | None:
    """Return the diff of a call that edits a file, when it shows everything that the arguments say."""
    arguments, edits = question.arguments, cast(object, question.arguments.get("edits"))
    is_one_kind = sum(bool(arguments.get(name)) for name in ("old_string", "edits", "content")) <= 1
    if not _is_built_in(question, EDIT_TOOLS) or not is_one_kind:
        return None
    each = cast(list[object], edits) if isinstance(edits, list) else []
    if any(isinstance(edit, dict) and cast(JsonObject, edit).get("replace_all") for edit in (arguments, *each)):
        return None
    return build_edit_diff(arguments, question.bound.surroundings.files, old_content)


def _is_built_in(question: Question, names: frozenset[str]) -> bool:
    return question.tool_name in names and question.bound.tool_origin == "local" and not question.bound.tool_source


def _describe_context(question: Question) -> str:
    bound = question.bound
    parts = [_clip(question.tool_name, _MAX_NAME_CELLS)]
    if bound.tool_origin != "local" or bound.tool_source:
        parts[0] += f" from {_clip(f'{bound.tool_origin} {bound.tool_source}'.strip(), _MAX_NAME_CELLS)}"
    if bound.surroundings.cwd:
        parts[0] += f" in {_clip_front(_shorten_home(bound.surroundings.cwd), _MAX_FOLDER_CELLS)}"
    sandbox = bound.surroundings.sandbox
    parts.append(
        "no sandbox"
        if sandbox.partition("/")[0] == "none"
        else _SANDBOXES.get(sandbox.partition("/")[2], f"sandbox: {_clip(sandbox, _MAX_NAME_CELLS)}")
    )
    if question.agent:
        parts.append(f"agent {_clip(question.agent, _MAX_NAME_CELLS)}")
    if bound.requester:
        parts.append(f"for {_clip(bound.requester, _MAX_NAME_CELLS)}")
    return ", ".join(parts)


def _list_notes(question: Question) -> Iterator[str]:
    """List what a person must not overlook: the risks that were found, changes, and text that may deceive."""
    risks = [fact for fact in question.risk if fact not in set(Risk) and not fact.startswith(_MINOR_RISKS)]
    if risks:
        yield f"risk: {'; '.join(map(_squeeze, risks))}"
    if question.edited_by:
        yield f"arguments edited by: {_squeeze(question.edited_by)}"
    if question.changes:
        yield f"changed since it was asked before: {', '.join(_squeeze(change.what) for change in question.changes)}"
    warnings = find_warnings(question)
    yield from (f"warning: {warning}" for warning in warnings[:_MAX_WARNINGS])
    if len(warnings) > _MAX_WARNINGS:
        yield f"warning: {len(warnings) - _MAX_WARNINGS:,} like these, press d"


def _body_lines(question: Question, width: int, old_content: str | None) -> Iterator[DisplayLine]:
    """Yield everything that would run: a command, a diff, or the arguments as an outline."""
    command, diff = get_command(question), find_edit_diff(question, old_content)
    if command is not None:
        for number, line in enumerate(command.split("\n")):
            yield from _wrap("|" if number else "$", line, width, "payload")
        yield from _outline(_drop_unset(question.arguments, "command"), width)
    elif diff is not None:
        counts = f" (+{diff.added:,} -{diff.removed:,})"
        remark = f" {diff.remark}" if diff.remark else ""
        yield DisplayLine(_fit(f"  {_squeeze(diff.path)}{counts}{remark}", width), "label")
        yield from chain.from_iterable(
            _wrap(line.sign, line.text, width, _SIGN_STYLES[line.sign]) for line in diff.lines
        )
        yield from _outline(_drop_unset(question.arguments, "path", "content", "old_string", "new_string"), width)
    elif question.arguments:
        yield from _outline(question.arguments, width)
    else:
        yield DisplayLine("  no arguments", "payload")
    yield from _trial_lines(question.trial, width)


def _trial_lines(trial: Trial | None, width: int) -> Iterator[DisplayLine]:
    """Yield what the call did in its trial: how it ended, the files, the diff, and where it printed something, the end
    of that.
    """
    if trial is None:
        return
    yield DisplayLine(_fit(f"  tried: {_squeeze(summarize_trial(trial))}", width), "label")
    for change in trial.changes:
        style = _CHANGE_STYLES.get(change.kind, "payload")
        yield from _wrap(CHANGE_SIGNS[change.kind], describe_tried_change(change), width, style)
    for line in parse_unified_diff(trial.diff):
        yield from _wrap(line.sign, line.text, width, _SIGN_STYLES[line.sign])
    if trial.is_diff_cut:
        yield DisplayLine("  ... the diff is cut here", "loud")
    if trial.output.strip():
        yield DisplayLine("  it printed:", "label")
        for text in trial.output.strip("\n").split("\n"):
            yield from _wrap("|", text, width, "fact")


def _drop_unset(arguments: JsonObject, *shown: str) -> JsonObject:
    """Return the arguments of a built-in tool that are not shown yet and have a value."""
    return {name: value for name, value in arguments.items() if name not in (*shown, "edits") and value}


def _outline(arguments: JsonObject, width: int) -> Iterator[DisplayLine]:
    return (DisplayLine(text, "payload") for text in write_outline(arguments, width))


def _wrap(sign: str, text: str, width: int, style: LineStyle) -> Iterator[DisplayLine]:
    room = width - _GUTTER
    indent = max(0, min(MAX_TEXT_INDENT, room - MAX_PIECE_CELLS - 1))
    first, *others = wrap_pieces(visible_pieces(text, indent), room, room)
    yield DisplayLine(f"  {sign} {first}".rstrip(" "), style)
    yield from (DisplayLine(f"  > {row}", style) for row in others)


def _squeeze(text: str) -> str:
    """Return untrusted text as one visible line."""
    return "".join(visible_pieces(shorten_line(text)))


def _fit(line: str, width: int) -> str:
    """Cut a line of visible text to the width, with an ellipsis where something is missing."""
    if cell_width(line) <= width:
        return line
    return f"{_take(line, width - 2)}…"


def _clip(text: str, cells: int) -> str:
    return _fit(_squeeze(text), cells)


def _clip_front(text: str, cells: int) -> str:
    shown = _squeeze(text)
    if cell_width(shown) <= cells:
        return shown
    return f"…{_take(shown[::-1], cells - 2)[::-1]}"


def _take(text: str, cells: int) -> str:
    end = min(len(text), cells)
    while cell_width(text[:end]) > cells:
        end -= 1
    return text[:end]


def _shorten_home(folder: str) -> str:
    home = expanduser("~")
    return f"~{folder.removeprefix(home)}" if folder == home or folder.startswith(f"{home}/") else folder
