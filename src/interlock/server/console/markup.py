r"""Text from anywhere as HTML that shows what is there: made visible as in a terminal, then escaped.

Characters that nobody would see are written out (`rendering/escaping.py`), and what is written out is marked, so that a
person can tell it from text that only looks like it. Nothing here makes a link, and nothing is cut.
"""

import re
from collections.abc import Callable, Iterable
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
        return f"{self.name}{self.mark}{self.rest}"

    @property
    def is_text(self) -> bool:
        return self.mark in (" | ", "| ")


def render_text(text: object) -> Markup:
    """One line, with what is written out marked."""
    return _mark_escapes(escape_invisible(str(text)))


def render_line(text: str) -> Markup:
    """A line of a longer text: what it is indented by stands for itself."""
    return _mark_escapes("".join(visible_pieces(text, MAX_TEXT_INDENT)))


def render_lines(text: str) -> list[Markup]:
    return [render_line(line) for line in text.split("\n")]


def mark_escapes(text: str) -> Markup:
    """Text that was made visible before."""
    return _mark_escapes(text)


def build_outline(arguments: JsonObject) -> list[OutlineLine]:
    """All of the arguments; `display_arguments.read` makes the same arguments of it again."""
    return [_parse_outline_line(line) for line in display_arguments.write_outline(arguments, _NO_WRAP_WIDTH)]


def parse_outline(lines: Iterable[tuple[int, str]]) -> JsonObject:
    """The arguments of an outline, given each line's depth and text as somebody sees them."""
    return display_arguments.read_outline(f"{'  ' * depth}{text}" for depth, text in lines)


def finalize_value(value: Any) -> Any:
    """What a template shows without saying how: text is made visible, whoever wrote it."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else escape_invisible(value)


def escape_exact(text: object) -> Markup:
    """For attributes that a browser sends back as they are."""
    return escape(str(text))


def quote_segment(text: object) -> str:
    """One part of an address, whatever is in it."""
    return quote(str(text), safe="", errors="replace")


def _mark_escapes(text: str) -> Markup:
    split = _ESCAPED.split(text)
    return Markup("").join(_PIECES[at % 2](piece) for at, piece in enumerate(split) if piece)


def _wrap_escape(text: str) -> Markup:
    return Markup('<span class="unseen">{}</span>').format(text)


_PIECES: tuple[Callable[[str], Markup], ...] = (escape, _wrap_escape)


def _parse_outline_line(line: str) -> OutlineLine:
    body = line.lstrip(" ")
    depth = min((len(line) - len(body)) // 2, _MAX_DEPTH + 2)
    if body.startswith("|"):
        return OutlineLine(depth, "", "| ", body[2:])
    match = _ENTRY.fullmatch(body)
    return OutlineLine(depth, "", "", body) if match is None else OutlineLine(depth, match[1], match[2], match[3])
