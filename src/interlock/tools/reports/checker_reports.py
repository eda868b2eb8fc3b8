"""Errors of a checker, one place each: what compilers, type checkers and linters share."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from .report import CommandOutput, FailureLocation, Findings, make_location


class Diagnostic(NamedTuple):
    """One error of a checker."""

    file: str
    #: Empty where the error is of the file, or of no file.
    line: str
    message: str

    @property
    def name(self) -> str:
        """Place of the diagnostic, or its message without one."""
        if not self.file:
            return self.message
        return f"{self.file}:{self.line}" if self.line else self.file


def make_findings(
    program: str, output: CommandOutput, stated: tuple[int, int] | None, found: Sequence[Diagnostic]
) -> Findings | None:
    """Return findings. `stated` is the line that gives the number of errors, and the number; without one they are
    counted.
    """
    if stated is None and not found:
        return None
    at, count = stated or (len(output.lines) - 1, None)
    if count == 0:
        found = ()
    if count is None and output.is_complete:
        count = len(found)
    return Findings(
        program=program,
        at=at,
        clean=count == 0,
        sure=stated is not None,
        errors=count,
        failing=tuple(diagnostic.name for diagnostic in found),
        first_failure=find_first_location(found),
    )


def find_first_location(found: Sequence[Diagnostic]) -> FailureLocation | None:
    """Return the first place that a diagnostic names, or None."""
    placed = (make_location(each.file, each.line, each.message) for each in found if each.file and each.line)
    return next(placed, None)


_MYPY_PLACE = re.compile(r"(\S.*?):([0-9]{1,9})(?::[0-9]{1,9}){0,3}")
_MYPY_FOUND = re.compile(r"Found ([0-9]{1,9}) errors? in [0-9]{1,9} files? \((?:checked|errors prevented) .*\)")
_MYPY_SUCCESS = re.compile(r"Success: no issues found in [0-9]{1,9} source files?")
_MYPY_ERROR = ": error: "
_MYPY_CODE = re.compile(r"  \[[a-z-]{1,60}\]$")


def read_mypy(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of mypy."""
    stated = _find_mypy_total(output.lines)
    return make_findings(
        "mypy", output, stated, [_parse_mypy_error(line) for line in output.lines if _is_mypy_error(line, stated)]
    )


def _is_mypy_error(line: str, stated: tuple[int, int] | None) -> bool:
    """Return True for an error of mypy. Compilers print similar lines: without a summary, a mypy code must end it."""
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


_RUFF_CODE = r"(?:[A-Z]{1,8}[0-9]{1,5}|invalid-syntax:)"
_RUFF_TITLE = re.compile(rf"{_RUFF_CODE} .*")
_RUFF_ARROW = re.compile(r" *--> (\S.*?):([0-9]{1,9}):[0-9]{1,9}")
_RUFF_CONCISE = re.compile(rf"(\S.*?):([0-9]{{1,9}}):[0-9]{{1,9}}: ({_RUFF_CODE} .*)")
_RUFF_GITHUB = re.compile(r"::error title=ruff \([^()]*\),file=([^,]+),line=([0-9]{1,9}),[^:]*::(.*)")
_RUFF_FOUND = re.compile(r"Found ([0-9]{1,9}) errors?(?: \([0-9]{1,9} fixed, ([0-9]{1,9}) remaining\))?\.")
_RUFF_PASSED = "All checks passed!"


def read_ruff(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of ruff."""
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


_TSC_PLAIN = re.compile(r"(\S.*)\(([0-9]{1,9}),[0-9]{1,9}\): error (TS[0-9]{1,6}: .*)")
_TSC_PRETTY = re.compile(r"(\S.*):([0-9]{1,9}):[0-9]{1,9} - error (TS[0-9]{1,6}: .*)")
_TSC_NO_FILE = re.compile(r"()()error (TS[0-9]{1,6}: .*)")
_TSC_FOUND = re.compile(
    r"Found ([0-9]{1,9}) errors?(?: in (?:[0-9]{1,9} files|the same file, starting at: .*|[^()]*:[0-9]{1,9}))?\.?"
)


def read_tsc(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of tsc. Return None if it has no error of tsc."""
    errors = [error for line in output.lines if " TS" in line and (error := _parse_tsc_error(line))]
    if not errors:
        return None
    found = make_findings("tsc", output, _find_tsc_total(output.lines), errors)
    # The code of an error is enough to know the program.
    return found and msgspec.structs.replace(found, sure=True)


def _parse_tsc_error(line: str) -> Diagnostic | None:
    match = _TSC_PLAIN.fullmatch(line) or _TSC_PRETTY.fullmatch(line) or _TSC_NO_FILE.fullmatch(line)
    return Diagnostic(match[1], match[2], match[3]) if match else None


def _find_tsc_total(lines: list[str]) -> tuple[int, int] | None:
    found = ((at, match) for at in range(len(lines) - 1, -1, -1) if (match := _TSC_FOUND.fullmatch(lines[at])))
    return next(((at, int(match[1])) for at, match in found), None)
