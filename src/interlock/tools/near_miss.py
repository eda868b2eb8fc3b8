"""A text that was not found: where is one that is nearly the same, and what differs?

It says a line number and the kind of the difference, and nothing of what stands there.
"""

import re
from bisect import bisect_right
from itertools import accumulate

_MAX_SEARCHED_CHARS = 2_000_000
_line_number = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
_escape = re.compile(r"\\u\{[0-9a-f]{1,6}\}|\\x[0-9a-f]{2}")


def near_miss(text: str, old: str) -> str:
    """What to add to "it was not found", with a separator, or nothing. Lines of both end with a plain line break."""
    if len(text) > _MAX_SEARCHED_CHARS:
        return ""
    if _all_numbered(old) and _line_number.sub("", old) in text:
        return ": leave out the line numbers that the reading tool puts before each line"
    if "\\n" in old and old.replace("\\n", "\n") in text:
        return ": it has a backslash and an n where the file has a line break"
    line = _line_without_whitespace(text, old)
    if line:
        return f": at line {line} there is the same text with other whitespace"
    line = _line_without_whitespace(text.casefold(), old.casefold())
    if line:
        return f": at line {line} there is the same text in other upper and lower case"
    return _by_first_line(text, old)


def _all_numbered(old: str) -> bool:
    return len(_line_number.findall(old)) == old.rstrip("\n").count("\n") + 1


def _line_without_whitespace(text: str, old: str) -> int:
    """The line where the text begins when whitespace counts for nothing; 0 when it is not there."""
    wanted = "".join(old.split())
    if not wanted:
        return 0
    lines = ["".join(line.split()) for line in text.split("\n")]
    at = "".join(lines).find(wanted)
    return 0 if at < 0 else bisect_right(list(accumulate(map(len, lines))), at) + 1


def _by_first_line(text: str, old: str) -> str:
    first, *others = (line.strip() for line in old.strip().split("\n"))
    if others and first:
        lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() == first]
        if len(lines) == 1:
            return f": its first line is at line {lines[0]}, and what follows differs"
    if _escape.search(old):
        return ": signs like \\u{200b} or \\xe9 stand for characters that cannot be shown; choose a text without them"
    return ""
