"""ruff check: errors in the full, concise or GitHub form, and a last line that counts them.

F401 [*] `os` imported but unused               shop.py:1:8: F401 [*] `os` imported but unused
 --> shop.py:1:8
Found 5 errors (4 fixed, 1 remaining).
"""

import re
from collections.abc import Iterator

from .diagnostics import Diagnostic, make_findings
from .output import CommandOutput
from .report import Findings

_RUFF_CODE = r"(?:[A-Z]{1,8}[0-9]{1,5}|invalid-syntax:)"
_RUFF_TITLE = re.compile(rf"{_RUFF_CODE} .*")
_RUFF_ARROW = re.compile(r" *--> (\S.*?):([0-9]{1,9}):[0-9]{1,9}")
_RUFF_CONCISE = re.compile(rf"(\S.*?):([0-9]{{1,9}}):[0-9]{{1,9}}: ({_RUFF_CODE} .*)")
_RUFF_GITHUB = re.compile(r"::error title=ruff \([^()]*\),file=([^,]+),line=([0-9]{1,9}),[^:]*::(.*)")
_RUFF_FOUND = re.compile(r"Found ([0-9]{1,9}) errors?(?: \([0-9]{1,9} fixed, ([0-9]{1,9}) remaining\))?\.")
_RUFF_PASSED = "All checks passed!"


def read_ruff(output: CommandOutput, exit_code: int | None) -> Findings | None:
    del exit_code
    return make_findings("ruff", output, _find_ruff_total(output.lines), list(_find_ruff_errors(output.lines)))


def _find_ruff_errors(lines: list[str]) -> Iterator[Diagnostic]:
    before = ""
    for line in lines:
        if (match := _RUFF_ARROW.fullmatch(line)) and _RUFF_TITLE.fullmatch(before):
            yield Diagnostic(match[1], match[2], before)
        elif match := _RUFF_GITHUB.fullmatch(line) or _RUFF_CONCISE.fullmatch(line):
            yield Diagnostic(match[1], match[2], match[3])
        before = line


def _find_ruff_total(lines: list[str]) -> tuple[int, int] | None:
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] == _RUFF_PASSED:
            return at, 0
        if match := _RUFF_FOUND.fullmatch(lines[at]):
            return at, int(match[2] or match[1])
    return None
