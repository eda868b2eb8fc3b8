"""ruff check: errors in the full, concise or GitHub form, and a last line that counts them.

F401 [*] `os` imported but unused               shop.py:1:8: F401 [*] `os` imported but unused
 --> shop.py:1:8
Found 5 errors (4 fixed, 1 remaining).
"""

import re
from collections.abc import Iterator

from .diagnostics import Diagnostic, checked
from .output import Output
from .report import Findings

_CODE = r"(?:[A-Z]{1,8}[0-9]{1,5}|invalid-syntax:)"
_TITLE = re.compile(rf"{_CODE} .*")
_ARROW = re.compile(r" *--> (\S.*?):([0-9]{1,9}):[0-9]{1,9}")
_CONCISE = re.compile(rf"(\S.*?):([0-9]{{1,9}}):[0-9]{{1,9}}: ({_CODE} .*)")
_GITHUB = re.compile(r"::error title=ruff \([^()]*\),file=([^,]+),line=([0-9]{1,9}),[^:]*::(.*)")
_FOUND = re.compile(r"Found ([0-9]{1,9}) errors?(?: \([0-9]{1,9} fixed, ([0-9]{1,9}) remaining\))?\.")
_PASSED = "All checks passed!"


def read(output: Output, exit_code: int | None) -> Findings | None:
    del exit_code
    return checked("ruff", output, _stated(output.lines), list(_errors(output.lines)))


def _errors(lines: list[str]) -> Iterator[Diagnostic]:
    before = ""
    for line in lines:
        if (match := _ARROW.fullmatch(line)) and _TITLE.fullmatch(before):
            yield Diagnostic(match[1], match[2], before)
        elif match := _GITHUB.fullmatch(line) or _CONCISE.fullmatch(line):
            yield Diagnostic(match[1], match[2], match[3])
        before = line


def _stated(lines: list[str]) -> tuple[int, int] | None:
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] == _PASSED:
            return at, 0
        if match := _FOUND.fullmatch(lines[at]):
            return at, int(match[2] or match[1])
    return None
