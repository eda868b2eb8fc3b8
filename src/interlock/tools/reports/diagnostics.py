"""Errors of a checker, one place each: what compilers, type checkers and linters share."""

from collections.abc import Sequence
from typing import NamedTuple

from .output import CommandOutput
from .report import Findings, FailureLocation, make_location


class Diagnostic(NamedTuple):
    file: str
    #: Empty where the error is of the file, or of no file.
    line: str
    message: str

    @property
    def name(self) -> str:
        if not self.file:
            return self.message
        return f"{self.file}:{self.line}" if self.line else self.file


def make_findings(
    program: str, output: CommandOutput, stated: tuple[int, int] | None, found: Sequence[Diagnostic]
) -> Findings | None:
    """`stated` is the line that gives the number of errors, and the number; without one they are counted."""
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
    placed = (make_location(each.file, each.line, each.message) for each in found if each.file and each.line)
    return next(placed, None)
