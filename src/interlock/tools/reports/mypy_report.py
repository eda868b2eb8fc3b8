"""mypy: errors on one line each, and a last line that counts them.

shop.py:6: error: Incompatible return value type (got "str", expected "int")  [return-value]
Found 3 errors in 2 files (checked 2 source files)
"""

import re

from .diagnostics import Diagnostic, make_findings
from .output import CommandOutput
from .report import Findings

_MYPY_PLACE = re.compile(r"(\S.*?):([0-9]{1,9})(?::[0-9]{1,9}){0,3}")
_MYPY_FOUND = re.compile(r"Found ([0-9]{1,9}) errors? in [0-9]{1,9} files? \((?:checked|errors prevented) .*\)")
_MYPY_SUCCESS = re.compile(r"Success: no issues found in [0-9]{1,9} source files?")
_MYPY_ERROR = ": error: "
_MYPY_CODE = re.compile(r"  \[[a-z-]{1,60}\]$")


def read_mypy(output: CommandOutput, exit_code: int | None) -> Findings | None:
    del exit_code
    stated = _find_mypy_total(output.lines)
    return make_findings(
        "mypy", output, stated, [_parse_mypy_error(line) for line in output.lines if _is_mypy_error(line, stated)]
    )


def _is_mypy_error(line: str, stated: tuple[int, int] | None) -> bool:
    """Compilers print such lines too: without the last line only those with a code of mypy's at the end count."""
    if _MYPY_ERROR not in line or line.startswith(" "):
        return False
    return stated is not None or _MYPY_CODE.search(line) is not None


def _parse_mypy_error(line: str) -> Diagnostic:
    place, _, message = line.partition(_MYPY_ERROR)
    match = _MYPY_PLACE.fullmatch(place)
    return Diagnostic(match[1], match[2], message) if match else Diagnostic(place, "", message)


def _find_mypy_total(lines: list[str]) -> tuple[int, int] | None:
    for at in range(len(lines) - 1, -1, -1):
        if match := _MYPY_FOUND.fullmatch(lines[at]):
            return at, int(match[1])
        if _MYPY_SUCCESS.fullmatch(lines[at]):
            return at, 0
    return None
