"""jest and vitest: the last block of counts, and the failing tests named above it.

    Test Suites: 1 failed, 1 passed, 2 total         Test Files  1 failed | 1 passed (2)
    Tests:       3 failed, 4 passed, 7 total              Tests  3 failed | 4 passed (7)
    Snapshots:   0 total                               Start at  02:45:31

A file that could not be read has no tests: it is an error, and the line of files says that it failed.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .report import CommandOutput, FailureLocation, Findings, find_last, make_location

_JEST_FILES = re.compile(r"Test Suites: (.*)")
_JEST_TESTS = re.compile(r"Tests:       (.*[0-9] total)")
_JEST_NO_TESTS = re.compile(r"No tests found, exiting with code [0-9]{1,3}")
_JEST_FILE = re.compile(r" ?FAIL {1,2}(\S.*?)(?: \([0-9.]+ m?s\))?")
_JEST_TEST = re.compile(r"  ● (\S.*)")
_JEST_PLACE = re.compile(r" +at (?:.* \()?([^\s()][^()]*):([0-9]{1,9}):[0-9]{1,9}\)?")
_JEST_BROKEN_FILE = "Test suite failed to run"
_VITEST_FILES = re.compile(r" Test Files  (.*\([0-9]{1,9}\)|no tests)")
_VITEST_TESTS = re.compile(r" {6}Tests  (.*\([0-9]{1,9}\)|no tests)")
_VITEST_ERRORS = re.compile(r" {5}Errors  ([0-9]{1,9}) errors?")
_VITEST_NO_TESTS = re.compile(r"No test files found, exiting with code [0-9]{1,3}")
_VITEST_FAIL = re.compile(r" FAIL  (\S.*)")
_VITEST_UNHANDLED = re.compile(r"\u23af+ (?:Unhandled|Uncaught) (?:Rejection|Error|Exception) \u23af+")
_VITEST_BROKEN_FILE = re.compile(r"(.*) \[ .* \]")
_VITEST_PLACE = re.compile(r" \u276f (?:\S+ )?([^\s:][^:]*):([0-9]{1,9}):[0-9]{1,9}")
_COUNT = re.compile(r"([0-9]{1,9}) ([a-z]+)")
#: The sign with which jest joins the names of groups and tests.
_NAME_SEPARATOR = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


class _Format(NamedTuple):
    """How a program prints its results."""

    program: str
    files: re.Pattern[str]
    tests: re.Pattern[str]
    no_tests: re.Pattern[str]
    #: Errors outside of tests, which are counted below the tests.
    stray_errors: re.Pattern[str] | None
    #: Yields the failing tests and files, and whether it is a file that could not be run.
    find_failures: Callable[[list[str]], Iterator[tuple[str, bool]]]
    is_failure: Callable[[str], bool]
    place: re.Pattern[str]


def read_jest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of jest."""
    return _read(output, _JEST)


def read_vitest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of vitest."""
    return _read(output, _VITEST)


def _read(output: CommandOutput, form: _Format) -> Findings | None:
    lines = output.lines
    at = find_last(form.tests, lines)
    if at is None:
        empty = find_last(form.no_tests, lines)
        return None if empty is None else Findings(program=form.program, at=empty, clean=True, passed=0, failed=0)
    counts = _parse_counts(form.tests, lines[at])
    below = (form.stray_errors.fullmatch(line) for line in lines[at + 1 : at + 3]) if form.stray_errors else ()
    stray = next((int(match[1]) for match in below if match), 0)
    broken = counts.get("failed", 0) or _parse_counts(form.files, lines[at - 1]).get("failed", 0) or stray
    failing = tuple(dict.fromkeys(form.find_failures(lines[:at]))) if broken else ()
    # No line states the number of files that could not be run.
    is_known = output.is_complete or not broken
    return Findings(
        program=form.program,
        at=at,
        clean=not broken,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        errors=sum(is_file for _, is_file in failing) + stray if is_known else None,
        skipped=counts.get("skipped", 0),
        failing=tuple(name for name, _ in failing),
        first_failure=_find_first_failure(lines[:at], form) if broken else None,
    )


def _parse_counts(pattern: re.Pattern[str], line: str) -> dict[str, int]:
    match = pattern.fullmatch(line)
    return {word: int(count) for count, word in _COUNT.findall(match[1])} if match else {}


def _find_jest_failures(lines: list[str]) -> Iterator[tuple[str, bool]]:
    file = ""
    for line in lines:
        if match := _JEST_FILE.fullmatch(line):
            file = match[1].removeprefix("./")
        elif (match := _JEST_TEST.fullmatch(line)) and file and match[1] != "Console":
            is_file = match[1] == _JEST_BROKEN_FILE
            yield (file if is_file else f"{file} {_NAME_SEPARATOR} {match[1]}"), is_file


def _find_vitest_failures(lines: list[str]) -> Iterator[tuple[str, bool]]:
    for line in lines:
        if match := _VITEST_FAIL.fullmatch(line):
            file = _VITEST_BROKEN_FILE.fullmatch(match[1])
            yield (file[1] if file else match[1]), file is not None


def _is_jest_failure(line: str) -> bool:
    match = _JEST_TEST.fullmatch(line)
    return match is not None and match[1] != "Console"


def _is_vitest_failure(line: str) -> bool:
    return (_VITEST_FAIL.fullmatch(line) or _VITEST_UNHANDLED.fullmatch(line)) is not None


def _find_first_failure(lines: list[str], form: _Format) -> FailureLocation | None:
    """Find the place of the first failure outside of the test runner."""
    message: str | None = None
    for line in lines:
        if form.is_failure(line):
            message = ""
        elif message is not None:
            message = message or line.strip()
            place = form.place.fullmatch(line)
            if place and "node_modules/" not in place[1]:
                return make_location(place[1], place[2], message)
    return None


_JEST = _Format(
    *("jest", _JEST_FILES, _JEST_TESTS, _JEST_NO_TESTS, None),
    *(_find_jest_failures, _is_jest_failure, _JEST_PLACE),
)
_VITEST = _Format(
    *("vitest", _VITEST_FILES, _VITEST_TESTS, _VITEST_NO_TESTS, _VITEST_ERRORS),
    *(_find_vitest_failures, _is_vitest_failure, _VITEST_PLACE),
)
