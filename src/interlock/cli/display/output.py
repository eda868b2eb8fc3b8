"""Output of commands: results on a terminal or for programs, and errors.

Nothing from a file or a log controls the terminal: texts are escaped, and JSON is ASCII.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain.errors import InterlockError
from ...policy.files.problems import PolicyFileError, PolicyProblem
from ...rendering.escaping import escape_invisible
from ...rendering.text import shorten

_VERDICT_STYLES = {"allow": "green", "ask": "yellow", "request_input": "yellow", "deny": "red"}
_MAX_CHARS = 500
_GAP = "  "
#: Fewer are ordinary: columns, indented code. So many push what follows out of sight on a narrow terminal.
_MIN_HIDING_SPACES = 20


def echo(*pieces: str | Text, error: bool = False) -> None:
    """Print one line, with texts escaped."""
    _make_console(error).print(_join(pieces), soft_wrap=True)


def echo_notice(text: str) -> None:
    """Print a notice on stderr: on a terminal wrapped between words."""
    console = _make_console(error=True)
    console.print(_join([text]), soft_wrap=not console.is_terminal)


def make_visible(text: str) -> str:
    """Return the text with invisible characters escaped. Of spaces only those that may hide what follows."""
    core = text.strip(" ")
    before, after = text[: len(text) - len(text.lstrip(" "))], text[len(text.rstrip(" ")) :]
    return f"{before}{escape_invisible(core, _MIN_HIDING_SPACES)}{after}" if core else text


def echo_table(titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table, one line per row. The last column is cut at the width of the terminal; a pipe gets more of it."""
    shown = [[_join([cell]) for cell in row] for row in (titles, *rows)]
    widths = [max(row[column].cell_len for row in shown) for column in range(len(titles) - 1)]
    console = _make_console(error=False)
    room = max(console.width if console.is_terminal else _MAX_CHARS, len(_GAP))
    for number, row in enumerate(shown):
        line = Text(style="" if number else "bold")
        for cell, width in zip(row, widths, strict=False):
            cell.truncate(width, pad=True)
            line.append_text(cell).append(_GAP)
        line.append_text(row[-1]).truncate(room, overflow="ellipsis")
        line.rstrip()
        console.print(line, soft_wrap=True)


def echo_json(value: Any) -> None:
    """Print a value as indented JSON that is safe for a terminal."""
    text = json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2)
    print(text.replace("\x7f", "\\u007f"))


def echo_result(as_json: bool, value: Any, *lines: str | Text) -> None:
    """Print the value for a program, or the lines for a person."""
    if as_json:
        echo_json(value)
        return
    for line in lines:
        echo(line)


def echo_list(
    as_json: bool, values: Any, titles: Sequence[str], rows: Sequence[Sequence[str | Text]], empty: str
) -> None:
    """Print values for a program, or their rows for a person; `empty` when there are none."""
    if as_json:
        echo_json(values)
    elif rows:
        echo_table(titles, rows)
    else:
        echo(empty)


def style_verdict(verdict: str) -> Text:
    """Return a verdict in its colour."""
    return Text(verdict, style=_VERDICT_STYLES.get(verdict, ""))


def truncate_text(text: str) -> str:
    """Return as much of a text as a list shows."""
    return shorten(text, _MAX_CHARS)


def _make_console(error: bool) -> Console:
    return Console(stderr=error, highlight=False, markup=False, emoji=False)


def _join(pieces: Iterable[str | Text]) -> Text:
    line = Text()
    for piece in pieces:
        line.append(piece if isinstance(piece, Text) else make_visible(piece))
    return line


def echo_error(error: InterlockError) -> None:
    """Print an error to stderr, each problem of a policy file on its own line."""
    if isinstance(error, PolicyFileError):
        echo_problems(error.problems)
    else:
        echo_notice(f"interlock: {error}")


def echo_problems(problems: Sequence[PolicyProblem], prefix: str = "") -> None:
    """Print the problems of a policy file to stderr."""
    for problem in problems:
        echo(f"{prefix}{problem}", error=True)
