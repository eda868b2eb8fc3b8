"""How a failure shows in an output: the words of failing lines, and where a traceback ends."""

import re
from collections.abc import Iterable

#: Words of failing lines, the sure ones first: the others count only where none of these is found.
SIGNS = (
    (
        *("Traceback (most recent call last)", "Error:", "ERROR", "error:", "error[", "FAIL", "AssertionError"),
        *("panic:", "panicked at", "fatal:", "FATAL", "Exception", "not ok ", "npm ERR!", "Segmentation fault"),
        *("✗", "✕", "✖", "Caused by:", "undefined reference", "command not found", "No such file"),
    ),
    ("Expected", "expected", "Error", "error", "Failed", "failed", "Failure", "failure", "exception", "assert"),
)
TRACEBACK = "Traceback (most recent call last)"
CAUSE = "Caused by:"
#: The line after a traceback that says what went wrong begins after such a place.
end_of_trace = re.compile(r"\n(?=[^\s|])").search
#: How many characters before and after a word of a failing line are looked at.
LOOK_CHARS = 64

_MAX_HINT_CHARS = 60
#: How many harmless lines with one word are passed over before the word is given up.
_MAX_HARMLESS = 1_000
#: What makes such a word harmless: it says that there was none. Before the word, and from it on.
_none_before = re.compile(r"(?:(?<![\w.])0|\b(?:no|zero|without)) \w*$", re.IGNORECASE).search
_none_after = re.compile(r"\w*[\"']?\s?[:=]\s{0,2}0\b").match


def first_failure(text: str) -> int:
    """Where the first failing line tells of its failure; -1 when none does."""
    for words in SIGNS:
        at = first_sign(text, words, 0, len(text))
        if at >= 0:
            return near_line_start(text, at)
    return -1


def first_sign(text: str, words: Iterable[str], start: int, end: int) -> int:
    """The first place between these where one of the words tells of a failure; -1 when none does."""
    first = -1
    for word in words:
        at = _find_sign(text, word, start, end)
        if at >= 0:
            first = end = at
    return first


def _find_sign(text: str, word: str, start: int, end: int) -> int:
    at = text.find(word, start, end)
    for _ in range(_MAX_HARMLESS):
        if at < 0 or not (_none_before(text[max(0, at - 16) : at]) or _none_after(text[at : at + 24])):
            return at
        at = text.find(word, at + 1, end)
    return -1


def near_line_start(text: str, at: int) -> int:
    earliest = max(0, at - _MAX_HINT_CHARS)
    line_start = text.rfind("\n", earliest, at) + 1
    return line_start if line_start or not earliest else at


def last_trace_end(text: str) -> int:
    """The line that ends the last traceback with its error, or the last cause; -1 without either."""
    cause = text.rfind(CAUSE)
    start = text.rfind(TRACEBACK)
    end = end_of_trace(text, start) if start >= 0 else None
    return cause if end is None else max(end.end(), cause)


def hint(text: str, at: int) -> str:
    """The start of the line, as far as it can be printed, so that it can be looked for as it is."""
    end = text.find("\n", at, at + 2 * _MAX_HINT_CHARS)
    line = text[at : at + 2 * _MAX_HINT_CHARS if end < 0 else end].strip()[:_MAX_HINT_CHARS]
    if line.isprintable():
        return line.strip()
    return next((part for part in _printable_parts(line) if part), "")


def _printable_parts(line: str) -> Iterable[str]:
    return (part.strip() for part in "".join(c if c.isprintable() else "\0" for c in line).split("\0"))
