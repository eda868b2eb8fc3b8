"""pytest: the last line of counts, the short summary, and the first failure block.

    === short test summary info ===
    FAILED test_shop.py::test_parse[a - b] - ValueError: ...
    === 1 failed, 3 passed in 0.03s ===

The line of counts has no `=` with `-q` and is missing with `-qq`. A test may print such a line itself: the last one
counts, except that exit code 1 means failing tests, so there the last one that has any is taken.
"""

import re
from collections.abc import Sequence

from .output import Output
from .report import Findings, Location, location

_COUNTS = re.compile(r"(?:=+ )?((?:[0-9]{1,9} [a-z]+(?:, )?)+) in [0-9.]+s(?: \([0-9:, a-z]+\))?(?: =+)?")
_NO_TESTS = re.compile(r"(?:=+ )?no tests ran in [0-9.]+s(?: \([0-9:, a-z]+\))?(?: =+)?")
_COUNT = re.compile(r"([0-9]{1,9}) ([a-z]+)")
_OUTCOMES = frozenset(
    "failed passed skipped deselected xfailed xpassed warning warnings error errors rerun subtests".split()
)
_PROGRESS = re.compile(r"(?:\S+ )?[.FEsxXR]+ +\[ *[0-9]{1,3}%\]")
_SESSION = re.compile(r"=+ test session starts(?: \([^()]*\))? =+")
_SUMMARY = re.compile(r"=+ short test summary info =+")
_SECTION = re.compile(r"=+ (?:ERRORS|FAILURES) =+")
_RULE = re.compile(r"=+ .* =+|_{3,} .* _{3,}")
_PLACE = re.compile(r"((?:[^\s:]|(?<=\S) (?=\S))+):([0-9]{1,9}): ?(.*)")
_FRAME = re.compile(r'(?:E +|  )File "([^"]+)", line ([0-9]{1,9})')

#: The exit code of a run in which tests failed; 2 and more are runs that came to no end.
_TESTS_FAILED = 1

type_of_counts = dict[str, int]


def read(output: Output, exit_code: int | None) -> Findings | None:
    lines = output.lines
    found = _last_counts(lines, exit_code)
    if found is None:
        return _without_counts(lines)
    at, counts = found
    if not counts.keys() <= _OUTCOMES:
        return None
    errors = counts.get("error", 0) + counts.get("errors", 0)
    failed = counts.get("failed", 0)
    return Findings(
        program="pytest",
        at=at,
        clean=not failed and not errors,
        passed=counts.get("passed", 0),
        failed=failed,
        errors=errors,
        skipped=counts.get("skipped", 0),
        failing=_failing(lines[:at]),
        first_failure=_first_failure(lines[:at]) if failed or errors else None,
    )
