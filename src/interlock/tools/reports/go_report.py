"""go test: a line for each package, and one for each failing test; with `-v` one for every test.

    --- FAIL: TestParse (0.00s)
        --- FAIL: TestParse/a_b (0.00s)
            shop_test.go:24: strconv.Atoi: parsing "a b": invalid syntax
    FAIL	example.com/shop	0.005s

No line counts the tests. With `-v` each was announced by `=== RUN`: those without parts of their own are counted, and
a line about one that was not announced is something a test printed. Without it the two look the same, so the failing
tests are named but not counted. Whether all is well is in the lines of the packages.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from .report import CommandOutput, FailureLocation, Findings, make_location

_PACKAGE = re.compile(r"(ok|FAIL|\?|---)? *\t(\S+)(?:\t| \[)(.*)")
_BROKEN_PACKAGE = re.compile(r"(?:build|setup) failed\]")
_EMPTY_PACKAGE = re.compile(r"no test files\]|\[no tests to run\]")
_RUN = re.compile(r"=== RUN   (\S+)")
_TEST = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \([0-9.]+s\)")
_PLACE = re.compile(r"(?:[ \t]+|\./)?([^\s:]+\.go):([0-9]{1,9})(?::[0-9]{1,9})?: (.*)")
_FRAME = re.compile(r"\t(\S.*\.go):([0-9]{1,9})(?: \+0x[0-9a-f]+)?")
_GO_RUNTIME = re.compile(r"/src/(?:testing|runtime)/")
_PANIC = "panic: "


class _TestNames(NamedTuple):
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    #: With `-v`, all tests are known.
    announced: bool


def read_go(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of go test. Return None if it is not from go."""
    lines = output.lines
    packages = [(at, match) for at, line in enumerate(lines) if (match := _PACKAGE.fullmatch(line)) and match[1]]
    if not packages:
        return None
    bad = [match for _, match in packages if match[1] == "FAIL"]
    broken = [match[2] for match in bad if _BROKEN_PACKAGE.fullmatch(match[3])]
    tests = _collect_tests(lines)
    counted = output.is_complete and tests.announced
    empty = not bad and all(_EMPTY_PACKAGE.search(match[3]) for _, match in packages)
    return Findings(
        program="go",
        at=packages[-1][0],
        clean=not bad,
        passed=len(tests.passed) if counted else 0 if empty and output.is_complete else None,
        failed=len(tests.failed) if counted else None if bad else 0,
        errors=len(broken) if output.is_complete else None,
        skipped=len(tests.skipped) if counted else None,
        failing=((*tests.failed, *broken) or tuple(match[2] for match in bad)) if bad else (),
        first_failure=_find_first_failure(lines) if bad else None,
    )


def _collect_tests(lines: list[str]) -> _TestNames:
    """Collect the tests by name and occurrence: tests of two packages may have the same name."""
    runs: dict[str, int] = {}
    words: dict[tuple[str, int], str] = {}
    for line in lines:
        if match := _RUN.fullmatch(line):
            runs[match[1]] = runs.get(match[1], 0) + 1
        elif match := _TEST.fullmatch(line):
            words[match[2], runs.get(match[2], 0)] = match[1]
    known = [(name, word) for (name, run), word in words.items() if run or not runs]
    wholes = _find_parent_tests(name for name, _ in known)
    parts = [(name, word) for name, word in known if name not in wholes]
    passed, failed, skipped = ([name for name, word in parts if word == sort] for sort in ("PASS", "FAIL", "SKIP"))
    return _TestNames(passed, failed, skipped, announced=bool(runs))


def _find_parent_tests(names: Iterable[str]) -> set[str]:
    """Return the tests that have subtests, whose names may contain slashes."""
    parted = [name for name in names if "/" in name]
    return {name.partition("/")[0] for name in parted} | {name.rpartition("/")[0] for name in parted}


def _find_first_failure(lines: list[str]) -> FailureLocation | None:
    """Find the first failure. Its place is printed after the failing line, before it with `-v`, or in the trace of a
    panic.
    """
    place: re.Match[str] | None = None
    failing = False
    for at, line in enumerate(lines):
        if line.startswith(_PANIC):
            return _find_panic_location(line, lines[at:])
        if match := _TEST.fullmatch(line):
            failing = failing or match[1] == "FAIL"
        elif line.startswith("=== "):
            place = None
        elif match := _PLACE.fullmatch(line):
            place = match
        if place is not None and (failing or not place[0].startswith(" ")):
            return make_location(place[1], place[2], place[3])
    return None


def _find_panic_location(message: str, lines: list[str]) -> FailureLocation | None:
    frames = (match for line in lines if (match := _FRAME.fullmatch(line)) and not _GO_RUNTIME.search(match[1]))
    return next((make_location(match[1], match[2], message) for match in frames), None)
