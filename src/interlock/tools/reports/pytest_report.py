"""pytest: the last line of counts, the short summary above it, and the first failure block.

    === short test summary info ===
    FAILED test_shop.py::test_parse[a - b] - ValueError: ...
    === 1 failed, 3 passed in 0.03s ===

The line of counts has no `=` with `-q` and is missing with `-qq`. A test may print such a line itself: the last one
counts, except that exit code 1 means failing tests, so there it is the last one that has any.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .report import CommandOutput, FailureLocation, Findings, make_location

_OUTCOMES = "failed|passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun|subtests (?:passed|skipped)"
_TIME = r"in [0-9.]+s(?: \([0-9:, a-z]+\))?(?: =+)?"
_COUNTS = re.compile(rf"(?:=+ )?([0-9]{{1,9}} (?:{_OUTCOMES})(?:, [0-9]{{1,9}} (?:{_OUTCOMES})){{0,12}}) {_TIME}")
_COUNT = re.compile(r"([0-9]{1,9}) ([a-z ]+)")
_NO_TESTS = re.compile(rf"(?:=+ )?no tests ran {_TIME}")
_ONLY_COLLECTED = re.compile(r"(?:=+ )?(?:no|[0-9/]{1,20}) tests? collected")
_PROGRESS = re.compile(r"(?:[^\s\[]+ )?([.FEsxXR]+) +\[ *[0-9]{1,3}%\]")
_SESSION = re.compile(r"=+ test session starts")
_SUMMARY = re.compile(r"=+ short test summary info =+")
_SECTION = re.compile(r"=+ (?:ERRORS|FAILURES) =+")
_END_OF_SECTION = re.compile(r"=+ [^=]* =+")
_BLOCK = re.compile(r"_+ \S.* _+")
_CAPTURED = re.compile(r"-+ Captured .* -+")
_FAILING = re.compile(r"(?:FAILED|ERROR|SUBFAILED) ?(\S.*)")
_PLACE = re.compile(r"([^\s:'\"=][^:'\"=]*):([0-9]{1,9}):(.*)")
_FRAME = re.compile(r'(?:E +| +)File "([^"]+)", line ([0-9]{1,9})')
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*")

#: The exit code of a run in which tests failed; 2 and more are runs that came to no end.
_TESTS_FAILED = 1


class _Counts(NamedTuple):
    at: int
    by_outcome: dict[str, int]

    @property
    def failed(self) -> int:
        return self.by_outcome.get("failed", 0)

    @property
    def errors(self) -> int:
        return self.by_outcome.get("error", 0) + self.by_outcome.get("errors", 0)


def read_pytest(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of pytest."""
    lines = output.lines
    counts = _find_last_counts(lines, exit_code)
    if counts is None:
        return _make_findings_without_counts(lines)
    clean = not counts.failed and not counts.errors
    return Findings(
        program="pytest",
        at=counts.at,
        clean=clean,
        passed=counts.by_outcome.get("passed", 0),
        failed=counts.failed,
        errors=counts.errors,
        skipped=counts.by_outcome.get("skipped", 0),
        failing=() if clean else _list_failing(lines[: counts.at]),
        first_failure=None if clean else _find_first_failure(lines[: counts.at]),
    )


def _find_last_counts(lines: list[str], exit_code: int | None) -> _Counts | None:
    last: _Counts | None = None
    for at in range(len(lines) - 1, -1, -1):
        if (counts := _parse_counts(at, lines[at])) is None:
            continue
        if exit_code != _TESTS_FAILED or counts.failed or counts.errors:
            return counts
        last = last or counts
    return last


def _parse_counts(at: int, line: str) -> _Counts | None:
    if not line.endswith(("s", ")", "=")):
        return None
    if match := _COUNTS.fullmatch(line):
        return _Counts(at, {word: int(count) for count, word in _COUNT.findall(match[1])})
    return _Counts(at, {}) if _NO_TESTS.fullmatch(line) else None


def _make_findings_without_counts(lines: list[str]) -> Findings | None:
    """Report a very quiet run, or one that broke off. Return None for a run that only lists the tests."""
    progress = [match[1] for line in lines if (match := _PROGRESS.fullmatch(line))]
    summary = _find_last(_SUMMARY, lines)
    started = _find_last(_SESSION, lines)
    if (started is None and summary is None and not progress) or _find_last(_ONLY_COLLECTED, lines) is not None:
        return None
    return Findings(
        program="pytest",
        at=len(lines) - 1,
        sure=started is not None or summary is not None,
        clean=started is None and summary is None and not any("F" in marks or "E" in marks for marks in progress),
        failing=_list_failing(lines),
        first_failure=_find_first_failure(lines),
    )


def _find_last(pattern: re.Pattern[str], lines: list[str]) -> int | None:
    return next((at for at in range(len(lines) - 1, -1, -1) if pattern.match(lines[at])), None)


def _list_failing(lines: list[str]) -> tuple[str, ...]:
    summary = _find_last(_SUMMARY, lines)
    if summary is None:
        return ()
    matches = (_FAILING.fullmatch(line) for line in lines[summary + 1 :])
    return tuple(_parse_test_id(match[1]) for match in matches if match)


def _parse_test_id(text: str) -> str:
    """Return the text up to the ` - ` before the message; one in the brackets of a parameter belongs to the id."""
    start = text.find(" - ")
    while start >= 0:
        if "[" not in text[:start] or text[start - 1] == "]" or text.startswith("["):
            return text[:start]
        start = text.find(" - ", start + 1)
    return text


def _find_first_failure(lines: list[str]) -> FailureLocation | None:
    started = _find_last(_SESSION, lines) or 0
    return next((place for block in _iterate_blocks(lines[started:]) if (place := _find_location(block))), None)


def _iterate_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the parts of the sections of errors and failures, without what tests printed."""
    block: list[str] | None = None
    shown = False
    for line in lines:
        if _SECTION.fullmatch(line) or (block is not None and _BLOCK.fullmatch(line)):
            if block:
                yield block
            block, shown = [line], True
        elif block is not None and _END_OF_SECTION.fullmatch(line):
            yield block
            block = None
        elif _CAPTURED.fullmatch(line):
            shown = False
        elif block is not None and shown:
            block.append(line)
    if block:
        yield block


def _find_location(block: list[str]) -> FailureLocation | None:
    """Return the last place of a traceback, where it was raised; the first for `--tb=line`, which has no blocks."""
    message, found = "", None
    for line in block[1:]:
        if line.startswith("E  ") and not message:
            message = line[1:].strip()
        match = _FRAME.match(line) or (None if line.startswith("E  ") else _PLACE.fullmatch(line))
        if match:
            found = match
            if not _BLOCK.fullmatch(block[0]):
                break
    if found is None:
        return None
    raised = next((line for line in reversed(block) if _RAISED.fullmatch(line)), "")
    return make_location(found[1], found[2], message or raised or found[found.re.groups])
