"""cargo test, build, check and clippy: results of each target, or the errors that kept it from being built.

    running 5 tests
    ...
    failures:
        tests::discount

    test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s

A run has several targets, and their results are added up. What a test prints may look like a result: one belongs to a
target only if its numbers add up to the number of tests that was announced, and the last such line counts.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .checker_reports import Diagnostic, find_first_location
from .report import CommandOutput, FailureLocation, Findings, find_last, make_location

_RUNNING = re.compile(r"running ([0-9]{1,9}) tests?")
_NUMBERS = r"([0-9]{1,9}) passed; ([0-9]{1,9}) failed; ([0-9]{1,9}) ignored; ([0-9]{1,9}) measured;"
_RESULT = re.compile(rf"test result: (?:ok|FAILED)\. {_NUMBERS} [0-9]{{1,9}} filtered out(?:; finished in [0-9.]+s)?")
_PANICKED = re.compile(r"thread '.*' (?:\([0-9]{1,9}\) )?panicked at (\S.*?):([0-9]{1,9}):[0-9]{1,9}:")
_FINISHED = re.compile(r" +Finished `?\w+`? .*target\(s\) in [0-9.]+.*")
_TESTS_FAILED = re.compile(r"error: (?:test|doctest) failed, to rerun pass `.*`|error: [0-9]{1,9} targets? failed:")
_NOT_COMPILED = re.compile(r"error: could not compile `.*")
_ERROR = re.compile(r"error(?:\[E[0-9]{1,5}\])?: (.*)")
_ARROW = re.compile(r" *--> (\S.*?):([0-9]{1,9}):[0-9]{1,9}")
_SHORT_ERROR = re.compile(r"(\S.*?):([0-9]{1,9}):[0-9]{1,9}: (error(?:\[E[0-9]{1,5}\])?: .*)")
_LISTED = re.compile(r" {4}\S.*")


class _Target(NamedTuple):
    """A group of tests that was announced. `at` is the line of its result, None where it never came."""

    tests: int
    at: int | None = None
    passed: int = 0
    failed: int = 0
    ignored: int = 0


def read_cargo(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of cargo. Return None if it is not from cargo."""
    lines = output.lines
    targets = _find_targets(lines)
    ends = (len(lines) if target.at is None else target.at for target in targets)
    stopped = find_last(_NOT_COMPILED, lines)
    if stopped is not None and stopped > max(ends, default=-1):
        return _make_compile_findings(output)
    if targets:
        return _make_test_findings(output, targets)
    at = find_last(_FINISHED, lines)
    if at is None:
        return None
    # What the tests printed may have gone elsewhere.
    failed = any(_TESTS_FAILED.fullmatch(line) for line in lines)
    return Findings(program="cargo", at=at, clean=not failed, errors=None if failed else 0)


def _find_targets(lines: list[str]) -> list[_Target]:
    targets: list[_Target] = []
    for at, line in enumerate(lines):
        if match := _RUNNING.fullmatch(line):
            if not targets or targets[-1].at is not None:
                targets.append(_Target(int(match[1])))
        elif targets and (match := _RESULT.fullmatch(line)):
            passed, failed, ignored, measured = map(int, match.groups())
            if passed + failed + ignored + measured == targets[-1].tests:
                targets[-1] = _Target(targets[-1].tests, at, passed, failed, ignored)
    return targets


def _make_test_findings(output: CommandOutput, targets: list[_Target]) -> Findings:
    lines = output.lines
    failing = [name for target in targets for name in _list_failing(lines, target)]
    known = output.is_complete and all(target.at is not None for target in targets)
    said_failed = any(_TESTS_FAILED.fullmatch(line) for line in lines)
    clean = not said_failed and all(target.at is not None and not target.failed for target in targets)
    return Findings(
        program="cargo",
        at=max(target.at or 0 for target in targets),
        clean=clean,
        passed=sum(target.passed for target in targets) if known else None,
        failed=sum(target.failed for target in targets) if known else None,
        skipped=sum(target.ignored for target in targets) if known else None,
        failing=tuple(failing),
        first_failure=None if clean else _find_first_panic(lines),
    )


def _list_failing(lines: list[str], target: _Target) -> list[str]:
    """Return the names listed right above the result."""
    if target.at is None or not target.failed:
        return []
    names: list[str] = []
    for line in reversed(lines[max(0, target.at - target.failed - 1) : target.at]):
        if _LISTED.fullmatch(line):
            names.append(line.strip())
        elif line:
            break
    return names[::-1]


def _find_first_panic(lines: list[str]) -> FailureLocation | None:
    for line, message in zip(lines, [*lines[1:], ""], strict=True):
        if match := _PANICKED.fullmatch(line):
            return make_location(match[1], match[2], message)
    return None


def _make_compile_findings(output: CommandOutput) -> Findings:
    errors = list(dict.fromkeys(_find_errors(output.lines)))
    return Findings(
        program="cargo",
        at=len(output.lines) - 1,
        clean=False,
        errors=len(errors) if output.is_complete and errors else None,
        failing=tuple(error.name for error in errors),
        first_failure=find_first_location(errors),
    )


def _find_errors(lines: list[str]) -> Iterator[Diagnostic]:
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if match := _SHORT_ERROR.fullmatch(line):
            yield Diagnostic(match[1], match[2], match[3])
        elif _ERROR.fullmatch(line) and (match := _ARROW.fullmatch(after)):
            yield Diagnostic(match[1], match[2], line)
