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

from .output import Output
from .report import Findings, Location, location

_PACKAGE = re.compile(r"(ok|FAIL|\?|---)? *\t(\S+)(?:\t| \[)(.*)")
_BROKEN_PACKAGE = re.compile(r"(?:build|setup) failed\]")
_EMPTY_PACKAGE = re.compile(r"no test files\]|\[no tests to run\]")
_RUN = re.compile(r"=== RUN   (\S+)")
_TEST = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \([0-9.]+s\)")
_PLACE = re.compile(r"(?:[ \t]+|\./)?([^\s:]+\.go):([0-9]{1,9})(?::[0-9]{1,9})?: (.*)")
_FRAME = re.compile(r"\t(\S.*\.go):([0-9]{1,9})(?: \+0x[0-9a-f]+)?")
_OF_GO = re.compile(r"/src/(?:testing|runtime)/")
_PANIC = "panic: "


class _Tests(NamedTuple):
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    #: With `-v`, all tests are known.
    announced: bool


def read(output: Output, exit_code: int | None) -> Findings | None:
    del exit_code
    lines = output.lines
    packages = [(at, match) for at, line in enumerate(lines) if (match := _PACKAGE.fullmatch(line)) and match[1]]
    if not packages:
        return None
    bad = [match for _, match in packages if match[1] == "FAIL"]
    broken = [match[2] for match in bad if _BROKEN_PACKAGE.fullmatch(match[3])]
    tests = _tests(lines)
    counted = output.whole and tests.announced
    empty = not bad and all(_EMPTY_PACKAGE.search(match[3]) for _, match in packages)
    return Findings(
        program="go",
        at=packages[-1][0],
        clean=not bad,
        passed=len(tests.passed) if counted else 0 if empty and output.whole else None,
        failed=len(tests.failed) if counted else None if bad else 0,
        errors=len(broken) if output.whole else None,
        skipped=len(tests.skipped) if counted else None,
        failing=((*tests.failed, *broken) or tuple(match[2] for match in bad)) if bad else (),
        first_failure=_first_failure(lines) if bad else None,
    )


def _tests(lines: list[str]) -> _Tests:
    """Tests of two packages may have one name, so what is kept of a test is its name and which run of it this is."""
    runs: dict[str, int] = {}
    words: dict[tuple[str, int], str] = {}
    for line in lines:
        if match := _RUN.fullmatch(line):
            runs[match[1]] = runs.get(match[1], 0) + 1
        elif match := _TEST.fullmatch(line):
            words[match[2], runs.get(match[2], 0)] = match[1]
    known = [(name, word) for (name, run), word in words.items() if run or not runs]
    wholes = _wholes(name for name, _ in known)
    parts = [(name, word) for name, word in known if name not in wholes]
    passed, failed, skipped = ([name for name, word in parts if word == sort] for sort in ("PASS", "FAIL", "SKIP"))
    return _Tests(passed, failed, skipped, announced=bool(runs))


def _wholes(names: Iterable[str]) -> set[str]:
    """The tests that have parts. The name of a part may hold slashes of its own."""
    parted = [name for name in names if "/" in name]
    return {name.partition("/")[0] for name in parted} | {name.rpartition("/")[0] for name in parted}


def _first_failure(lines: list[str]) -> Location | None:
    """The place is printed after the failing line, but before it with `-v`. A panic has its own trace."""
    place: re.Match[str] | None = None
    failing = False
    for at, line in enumerate(lines):
        if line.startswith(_PANIC):
            return _of_panic(line, lines[at:])
        if match := _TEST.fullmatch(line):
            failing = failing or match[1] == "FAIL"
        elif line.startswith("=== "):
            place = None
        elif match := _PLACE.fullmatch(line):
            place = match
        if place is not None and (failing or not place[0].startswith(" ")):
            return location(place[1], place[2], place[3])
    return None


def _of_panic(message: str, lines: list[str]) -> Location | None:
    frames = (match for line in lines if (match := _FRAME.fullmatch(line)) and not _OF_GO.search(match[1]))
    return next((location(match[1], match[2], message) for match in frames), None)
