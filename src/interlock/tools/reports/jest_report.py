"""jest and vitest: the last block of counts, and the failing tests named above it.

    Test Suites: 1 failed, 1 passed, 2 total         Test Files  1 failed | 1 passed (2)
    Tests:       3 failed, 4 passed, 7 total              Tests  3 failed | 4 passed (7)
    Snapshots:   0 total                               Start at  02:45:31

A file that could not be read has no tests: it is an error, and the line of files says that it failed.
"""

import re
from collections.abc import Iterator

from .report import CommandOutput, FailureLocation, Findings, make_location

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


def read_jest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of jest."""
    del exit_code
    lines = output.lines
    at = _find_last(_JEST_TESTS, lines)
    if at is None:
        return _make_empty_findings("jest", _JEST_NO_TESTS, lines)
    counts = _parse_counts(_JEST_TESTS, lines[at])
    broken = counts.get("failed", 0) or _parse_counts(_JEST_FILES, lines[at - 1]).get("failed", 0)
    failing = tuple(dict.fromkeys(_find_jest_failures(lines[:at]))) if broken else ()
    return Findings(
        program="jest",
        at=at,
        clean=not broken,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        errors=_count_broken_files(output, failing, bool(broken)),
        skipped=counts.get("skipped", 0),
        failing=tuple(name for name, _ in failing),
        first_failure=_find_first_jest_failure(lines[:at]) if broken else None,
    )


def read_vitest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of vitest."""
    del exit_code
    lines = output.lines
    at = _find_last(_VITEST_TESTS, lines)
    if at is None:
        return _make_empty_findings("vitest", _VITEST_NO_TESTS, lines)
    counts = _parse_counts(_VITEST_TESTS, lines[at])
    stray = next((int(match[1]) for line in lines[at + 1 : at + 3] if (match := _VITEST_ERRORS.fullmatch(line))), 0)
    broken = counts.get("failed", 0) or _parse_counts(_VITEST_FILES, lines[at - 1]).get("failed", 0) or stray
    failing = tuple(dict.fromkeys(_find_vitest_failures(lines[:at]))) if broken else ()
    errors = _count_broken_files(output, failing, bool(broken))
    return Findings(
        program="vitest",
        at=at,
        clean=not broken,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        errors=None if errors is None else errors + stray,
        skipped=counts.get("skipped", 0),
        failing=tuple(name for name, _ in failing),
        first_failure=_find_first_vitest_failure(lines[:at]) if broken else None,
    )


def _find_last(pattern: re.Pattern[str], lines: list[str]) -> int | None:
    return next((at for at in range(len(lines) - 1, -1, -1) if pattern.fullmatch(lines[at])), None)


def _parse_counts(pattern: re.Pattern[str], line: str) -> dict[str, int]:
    match = pattern.fullmatch(line)
    return {word: int(count) for count, word in _COUNT.findall(match[1])} if match else {}


def _make_empty_findings(program: str, pattern: re.Pattern[str], lines: list[str]) -> Findings | None:
    at = _find_last(pattern, lines)
    return None if at is None else Findings(program=program, at=at, clean=True, passed=0, failed=0)


def _count_broken_files(output: CommandOutput, failing: tuple[tuple[str, bool], ...], broken: bool) -> int | None:
    """Count files that could not be run by their blocks: no line states their number."""
    if not broken:
        return 0
    return sum(is_file for _, is_file in failing) if output.is_complete else None


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


def _find_first_jest_failure(lines: list[str]) -> FailureLocation | None:
    """Find the place of the first failure outside of the test runner."""
    message: str | None = None
    for line in lines:
        if match := _JEST_TEST.fullmatch(line):
            if match[1] != "Console":
                message = ""
        elif message is not None:
            message = message or line.strip()
            place = _JEST_PLACE.fullmatch(line)
            if place and "node_modules/" not in place[1]:
                return make_location(place[1], place[2], message)
    return None


def _find_first_vitest_failure(lines: list[str]) -> FailureLocation | None:
    message: str | None = None
    for line in lines:
        if _VITEST_FAIL.fullmatch(line) or _VITEST_UNHANDLED.fullmatch(line):
            message = ""
        elif message is not None:
            message = message or line.strip()
            place = _VITEST_PLACE.fullmatch(line)
            if place and "node_modules/" not in place[1]:
                return make_location(place[1], place[2], message)
    return None
