"""Style the Markdown of a model on a terminal, row by row, while it is streamed.

Only the marks around bold text and code are left out, and only where both are in one row. Everything else stays as it
was written: a glob, a comment or a table is not taken for formatting.
"""

import re
from collections.abc import Mapping

from rich.text import Text

#: By the first character of a line.
DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}
_FENCE = re.compile(r" {0,3}```\s*([\w+-]*)")
_HEADING = re.compile(r"#{1,6} \S")
_INLINE = re.compile(
    r"(?<!`)`(?P<code>[^`]+)`(?!`)"
    r"|(?<![\w*/\\])\*\*(?P<bold>[^\s*`/](?:[^*`/]*[^\s*`/])?)\*\*(?![\w*/])"
)
_STYLES = {"code": "cyan", "bold": "bold"}


class MarkdownRows:
    """Styles the rows of one text in order: a block of code spans several."""

    def __init__(self) -> None:
        #: The language of the block of code that the next row is in; None: in none.
        self._language: str | None = None

    def style(self, row: str) -> Text:
        """Return the next row with its style."""
        fence = _FENCE.match(row)
        shown = self.preview(row)
        if fence is not None:
            self._language = fence[1] if self._language is None else None
        return shown

    def preview(self, row: str) -> Text:
        """Return a row that may still change."""
        if _FENCE.match(row):
            return Text(row, "dim")
        if self._language is not None:
            return Text(row, DIFF_STYLES.get(row[:1], "") if self._language == "diff" else "cyan")
        if _HEADING.match(row):
            return Text(row, "bold")
        shown, at = Text(), 0
        for match in _INLINE.finditer(row):
            kind = str(match.lastgroup)
            shown.append(row[at : match.start()]).append(match[kind], _STYLES[kind])
            at = match.end()
        return shown.append(row[at:])
