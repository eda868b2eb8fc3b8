"""Locations in a policy file, and the problems there."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_PROBLEMS = 50
#: Larger numbers are not the same in every language.
MAX_INTEGER = 2**53 - 1

#: The way from the top of the file: keys, and places in lists.
DocumentPath: TypeAlias = tuple[str | int, ...]


class PolicyProblem(msgspec.Struct, frozen=True):
    """A problem in a policy file, and its location. Line 0 is the file as a whole."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


class PolicyFileError(ConfigurationError):
    """A policy file was rejected. `problems` has all findings."""

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)[:MAX_PROBLEMS]
        super().__init__("\n".join(map(str, self.problems)))


class PolicySource(msgspec.Struct, frozen=True):
    """The parsed content of a policy file, with locations."""

    path: str
    value: Any
    lines: Mapping[DocumentPath, int]

    def line_at(self, location: Iterable[str | int]) -> int:
        """Return the line of a location, or of the nearest enclosing one. Components that are no keys of the file do
        not count.
        """
        known: DocumentPath = ()
        for part in location:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known, 0)

    def make_problem(self, location: Iterable[str | int], reason: str) -> PolicyProblem:
        """Build a problem with the line of its location."""
        return PolicyProblem(self.path, self.line_at(location), reason)


def make_error(path: str, line: int, reason: str) -> PolicyFileError:
    """Build the error for a single problem."""
    return PolicyFileError([PolicyProblem(path, line, reason)])
