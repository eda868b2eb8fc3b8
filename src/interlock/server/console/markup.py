r"""Untrusted text as HTML that shows exactly its characters: made visible as in a terminal, then escaped.

Invisible characters are escaped (`rendering/escaping.py`), and the escapes are marked, so that a person can distinguish
them from text that only looks like it. Spaces and tabs between other text stand for themselves, as code has them;
trailing ones and very long runs are marked. Nothing here makes a link, and nothing is cut.
"""

import re
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from ...domain.tool import JsonObject
from ...rendering import argument_outline as display_arguments
from ...rendering.argument_outline import MAX_TEXT_INDENT
from ...rendering.escaping import escape_invisible, visible_pieces

#: No line of an outline is broken here: that is the browser's to do, behind the mark at its beginning.
_NO_WRAP_WIDTH = 10_000_000
_ESCAPED = re.compile(r"(\\u\{[0-9a-f]{1,6}\}|\\[\\ntr]|\[[0-9]{1,7} spaces\])")
#: More spaces in a row could move what follows out of sight.
_MAX_SHOWN_SPACES = 80
_SPACES = re.compile(r"\\t|\[([0-9]{1,7}) spaces\]")
_ENTRY = re.compile(r'((?:@[0-9]+ )?(?:[A-Za-z_][A-Za-z0-9_.-]*|"[^"]*"|\[[0-9]+\]))( = | \| |: )(.*)')
#: Deeper levels stand where this one does, and say how deep they are.
_MAX_DEPTH = display_arguments.MAX_INDENT


class OutlineLine(msgspec.Struct, frozen=True, gc=False):
    """One line of arguments. `name + mark + rest` behind a margin of `depth` is what the terminal shows."""

    depth: int
    name: str
    mark: str
    rest: str

    @property
    def text(self) -> str:
        """The line as plain text."""
        return f"{self.name}{self.mark}{self.rest}"

    @property
    def is_text(self) -> bool:
        """True if the line belongs to a multi-line text."""
        return self.mark in (" | ", "| ")


def render_text(text: object) -> Markup:
    """Return one line, with escapes marked."""
    return _mark_escapes(escape_invisible(str(text)))


def render_line(text: str) -> Markup:
    """Return a line of a longer text, with its indentation."""
    return _mark_escapes("".join(visible_pieces(text, MAX_TEXT_INDENT)), is_line=True)


def render_lines(text: str) -> list[Markup]:
    """Render each line of a text."""
    return [render_line(line) for line in text.split("\n")]


def render_paragraph(text: str) -> Markup:
    """Return a text of several lines, for an element that keeps line breaks."""
    return Markup("\n").join(render_lines(text))


def mark_escapes(text: str) -> Markup:
    """Mark the escapes in a line of an outline, which is already escaped."""
    return _mark_escapes(text, is_line=True)


def build_outline(arguments: JsonObject) -> list[OutlineLine]:
    """Return all arguments as an outline."""
    return [_parse_outline_line(line) for line in display_arguments.write_outline(arguments, _NO_WRAP_WIDTH)]


def finalize_value(value: Any) -> Any:
    """Return a template value with its text made visible."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else escape_invisible(value)


def escape_exact(text: object) -> Markup:
    """Escape text for attributes that a browser sends back unchanged."""
    return escape(str(text))


def quote_segment(text: object) -> str:
    """Quote one segment of a URL."""
    return quote(str(text), safe="", errors="replace")


def _mark_escapes(text: str, *, is_line: bool = False) -> Markup:
    """Mark the escapes. Spaces and tabs inside the text stand for themselves; `is_line`: in front of it, too."""
    split = _ESCAPED.split(text)  # text and escapes in turn
    spaces = {at: shown for at in range(1, len(split), 2) if (shown := _decode_spaces(split[at])) is not None}
    content = [at for at, piece in enumerate(split) if at not in spaces and piece.strip(" ")]
    first, last = (-1 if is_line else content[0], content[-1]) if content else (0, 0)
    marked = list[Markup]()
    for at, piece in enumerate(split):
        if at % 2 == 0:
            marked.append(escape(piece))
        elif at in spaces and first < at < last:
            marked.append(Markup('<span class="spaces">{}</span>').format(spaces[at]))
        else:
            marked.append(Markup('<span class="unseen">{}</span>').format(piece))
    return Markup("").join(marked)


def _decode_spaces(escaped: str) -> str | None:
    """Return the spaces or the tab that an escape stands for; None for another one, or more than are shown."""
    match = _SPACES.fullmatch(escaped)
    if match is None or (match[1] and int(match[1]) > _MAX_SHOWN_SPACES):
        return None
    return " " * int(match[1]) if match[1] else "\t"


def _parse_outline_line(line: str) -> OutlineLine:
    body = line.lstrip(" ")
    depth = min((len(line) - len(body)) // 2, _MAX_DEPTH + 2)
    if body.startswith("|"):
        return OutlineLine(depth, "", "| ", body[2:])
    match = _ENTRY.fullmatch(body)
    return OutlineLine(depth, "", "", body) if match is None else OutlineLine(depth, match[1], match[2], match[3])
