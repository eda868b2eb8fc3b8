"""node's own test runner: the counts at the end of its TAP or its `spec` output, and the tests that are not ok.

    not ok 4 - parses                       test at shop.test.js:9:1
      ---                                   ✖ parses (0.1ms)
      location: '/app/shop.test.js:9:1'
      error: 'not a number'

What a test prints stands in TAP as comments with escaped signs, so it does not look like a count.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .report import CommandOutput, FailureLocation, Findings, find_last, make_location

_TESTS = re.compile(r"[#\u2139] tests [0-9]{1,9}")
_COUNT = re.compile(r"[#\u2139] ([a-z]+) ([0-9]{1,9})")
_LINES_OF_COUNTS = 7
_NOT_OK = re.compile(r" *not ok [0-9]{1,9} - (.*)")
_FIELD = re.compile(r" *(location|failureType|error): (.*)")
_PLACE = re.compile(r"'?(.+?):([0-9]{1,9}):[0-9]{1,9}'?")
_SPEC_PLACE = re.compile(r"test at (.+)")
_SPEC_NAME = re.compile(r"✖ (.*?)(?: \([0-9.]+ms\))?")
#: A suite fails when a test of it does; the test is the one to name.
_SUBTESTS_FAILED = "'subtestsFailed'"
_UNDECIDED_TODO = " # TODO"
_FIELDS_END = "..."


class _FailedTest(NamedTuple):
    name: str
    place: str
    message: str


def read_node(output: CommandOutput, exit_code: int | None) -> Findings | None:
    """Parse the output of the test runner of Node.js. Return None if it is not from it."""
    lines = output.lines
    at = find_last(_TESTS, lines)
    if at is None:
        return None
    counts = {
        match[1]: int(match[2]) for line in lines[at : at + _LINES_OF_COUNTS] if (match := _COUNT.fullmatch(line))
    }
    if not {"pass", "fail"} <= counts.keys():
        return None
    failed = counts["fail"] + counts.get("cancelled", 0)
    failing = list(_parse_tap(lines[:at]) if lines[at].startswith("#") else _parse_spec(lines[at:])) if failed else []
    return Findings(
        program="node",
        at=at,
        clean=not failed,
        passed=counts["pass"],
        failed=failed,
        skipped=counts.get("skipped", 0),
        failing=tuple(test.name for test in failing),
        first_failure=_to_location(failing[0]) if failing else None,
    )


def _parse_tap(lines: list[str]) -> Iterator[_FailedTest]:
    name, fields, wants_text = "", dict[str, str](), False
    for line in lines:
        if match := _NOT_OK.fullmatch(line):
            name, fields, wants_text = match[1].replace("\\#", "#"), {}, False
        elif name and line.strip() == _FIELDS_END:
            if fields.get("failureType") != _SUBTESTS_FAILED and not name.endswith(_UNDECIDED_TODO):
                yield _FailedTest(name, fields.get("location", ""), fields.get("error", "").strip("'"))
            name = ""
        elif wants_text:
            fields["error"], wants_text = line.strip(), False
        elif name and (match := _FIELD.fullmatch(line)) and match[1] not in fields:
            fields[match[1]], wants_text = match[2], match[2].startswith("|")


def _parse_spec(lines: list[str]) -> Iterator[_FailedTest]:
    for place, title, text in zip(lines, lines[1:], lines[2:], strict=False):
        where, name = _SPEC_PLACE.fullmatch(place), _SPEC_NAME.fullmatch(title)
        if where and name:
            yield _FailedTest(name[1], where[1], text)


def _to_location(test: _FailedTest) -> FailureLocation | None:
    place = _PLACE.fullmatch(test.place)
    return make_location(place[1], place[2], test.message) if place else None
