r"""Where a text can be cut so that its two parts are redacted as the whole is.

Such a place is after a line break that no match spans, nor anything that a search consumes. Words, tokens,
runs and values end with their line, and no pattern looks back over a line break. What spans it is listed in
`_find_open_end`; besides that, private keys and declared secrets of several lines. All this holds for
the text as it is and for the text with its split words joined, so both are looked at.

A new pattern that spans a line break belongs in this list.
"""

import re
from collections.abc import Iterable

from .. import lazy_pattern
from .matches import JoinedText
from .prefilter import may_be_split

_find_open_end = lazy_pattern(
    r"""(?:
      (?i:bearer) \s{0,3}
    | (?i:cookie) ["'\\\]]{0,4} \s{0,3} (?:[:=,]\s{0,3})?
      # A value that is the key of the next value is none.
    | (?i:passw(?:or)?d|passphrase|pwd|secret|token|key|credentials?) ["'\\]{0,3} \s{0,3}
      # A quoted value continues after a backslash.
    | \\\n
      # An access key and, some characters later, what belongs to it.
    | A[KS]IA [A-Z0-9]{16} (?s:.){0,128}
      # A line of wrapped base64.
    | [A-Za-z0-9+/]{60} \r?\n
    )\Z""",
    re.VERBOSE,
).search
#: No open end is longer.
_OPEN_CHARS = 160
_BODY = r"[A-Za-z0-9+/=\s\\:,.]*"
_match_open_key = lazy_pattern(
    rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{_BODY}(?:-(?!----){_BODY})*\Z"
).match
#: How many ends of lines are tried.
_MAX_TRIES = 64


class SplitPoints:
    """Finds safe split points in a text."""

    def __init__(self, literals: Iterable[str]) -> None:
        lines = [literal.split("\n") for literal in literals if "\n" in literal]
        #: A declared secret of several lines continues after a line that ends like its first, or is one of the others.
        self._first_lines = tuple({first + "\n" for first, *_ in lines})
        self._other_lines = frozenset(line + "\n" for _, *others in lines for line in others[:-1])

    def find_last(self, text: str) -> int:
        """Return the last border in a text that begins at one; 0 when none is found."""
        joined = JoinedText.from_text(text) if may_be_split(text) else None
        end = text.rfind("\n") + 1
        for _ in range(_MAX_TRIES):
            since = self._find_open_start(text, end)
            if since < 0 and joined and self._find_open_start(joined.text, joined.map_end(end)) >= 0:
                since = end - 1
            if since < 0:
                return end
            end = text.rfind("\n", 0, since) + 1
        return 0

    def is_safe_after_plain(self, text: str) -> bool:
        """Return True if the end of a plain text is a split point. Only a declared secret may continue."""
        return not self._is_inside_declared(text, len(text))

    def _find_open_start(self, text: str, end: int) -> int:
        """Return where a key begins, or a line ends, that spans the line break before `end`; -1 when none does."""
        key_start = text.rfind("-----BEGIN ", 0, end)
        if key_start >= 0 and _match_open_key(text, key_start, end):
            return key_start
        if _find_open_end(text, max(0, end - _OPEN_CHARS), end) or self._is_inside_declared(text, end):
            return end - 1
        return -1

    def _is_inside_declared(self, text: str, end: int) -> bool:
        if not self._first_lines or not end:
            return False
        line = text[text.rfind("\n", 0, end - 1) + 1 : end]
        return any(
            line.endswith(self._first_lines) or line in self._other_lines
            for line in (line, line.removesuffix("\r\n") + "\n")
        )
