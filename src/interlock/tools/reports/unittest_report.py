"""unittest: the last `Ran N tests` with its verdict, and the blocks of errors and failures above it.

    ERROR: test_each (test_shop.TestShop.test_each) (text='a b')
    ...
    Ran 7 tests in 0.001s

    FAILED (failures=1, errors=4, skipped=1)

Parts of a test fail on their own and a class can fail before its tests, so how many passed is known only of a run
without any of that.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .report import CommandOutput, FailureLocation, Findings, make_location

_RAN = re.compile(r"Ran ([0-9]{1,9}) tests? in [0-9.]+s")
_VERDICT = re.compile(r"(OK|FAILED|NO TESTS RAN)(?: \(([a-z= ,0-9]+)\))?")
_COUNT = re.compile(r"([a-z ]+)=([0-9]{1,9})")
_RULE = "=" * 70
_BLOCK = re.compile(r"(?:ERROR|FAIL|UNEXPECTED SUCCESS): (\S.*)")
_NAME = re.compile(r"(\S+) \(([^()]+)\)(.*)")
_FRAME = re.compile(r'  File "([^"]+)", line ([0-9]{1,9})')
#: The verdict follows an empty line.
_LINES_TO_VERDICT = 3


class _Verdict(NamedTuple):
    at: int
    ran: int
    word: str
    counts: dict[str, int]

    @property
    def failed(self) -> int:
        return self.counts.get("failures", 0) + self.counts.get("unexpected successes", 0)

    @property
    def passed(self) -> int | None:
        return self.ran if self.word != "FAILED" and not self.counts else None


def read_unittest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of unittest. Return None if it is not from unittest."""
    lines = output.lines
    verdict = _find_last_verdict(lines, exit_code)
    if verdict is None:
        return None
    clean = verdict.word != "FAILED"
    return Findings(
        program="unittest",
        at=verdict.at,
        clean=clean,
        ran=verdict.ran if verdict.passed is None else None,
        passed=verdict.passed,
        failed=verdict.failed,
        errors=verdict.counts.get("errors", 0),
        skipped=verdict.counts.get("skipped", 0),
        failing=() if clean else tuple(_list_failing(lines[: verdict.at])),
        first_failure=None if clean else _find_first_failure(lines[: verdict.at]),
    )


def _find_last_verdict(lines: list[str], exit_code: int | None) -> _Verdict | None:
    """Return the last verdict; if the exit code indicates failure, the last one that says so too."""
    last: _Verdict | None = None
    for at in range(len(lines) - 1, -1, -1):
        ran = _RAN.fullmatch(lines[at])
        if ran is None or (verdict := _parse_verdict(at, int(ran[1]), lines[at + 1 : at + _LINES_TO_VERDICT])) is None:
            continue
        if exit_code != 1 or verdict.word == "FAILED":
            return verdict
        last = last or verdict
    return last


def _parse_verdict(at: int, ran: int, following: list[str]) -> _Verdict | None:
    match = next((match for line in following if (match := _VERDICT.fullmatch(line))), None)
    if match is None:
        return None
    counts = (_COUNT.fullmatch(part) for part in (match[2] or "").split(", "))
    return _Verdict(at, ran, match[1], {count[1]: int(count[2]) for count in counts if count})


def _find_headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    for at, line in enumerate(lines[1:], start=1):
        if lines[at - 1] == _RULE and (match := _BLOCK.fullmatch(line)):
            yield at, match[1]


def _list_failing(lines: list[str]) -> Iterator[str]:
    for _, text in _find_headings(lines):
        match = _NAME.fullmatch(text)
        if match is None:
            yield text
        else:
            method, place, rest = match.groups()
            yield (place if place.endswith(f".{method}") else f"{place}.{method}") + rest


def _find_first_failure(lines: list[str]) -> FailureLocation | None:
    headings = [at for at, _ in _find_headings(lines)]
    if not headings:
        return None
    end = headings[1] - 1 if len(headings) > 1 else len(lines)
    frame, message = None, ""
    for line in lines[headings[0] + 1 : end]:
        if match := _FRAME.match(line):
            frame, message = match, ""
        elif frame is not None and not message and not line.startswith(" "):
            message = line
    return make_location(frame[1], frame[2], message) if frame else None
