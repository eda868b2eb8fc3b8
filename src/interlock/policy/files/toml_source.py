"""TOML as plain values, with the same bounds as YAML and lines as near as a look at the text can say."""

import math
import re
import tomllib
from datetime import date, datetime, time
from typing import Any, cast

from .problems import MAX_DEPTH, MAX_INTEGER, MAX_NODES, DocumentPath, PolicyFileError, PolicySource, make_error

#: A dotted key of TOML is read in time that grows with the square of its parts.
_MAX_DOTS_IN_LINE = 200
_TABLE = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.-]{1,200})\s*\]")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_-]{1,200})\s*=")
_AT_LINE = re.compile(r"at line (\d+)")


def parse_toml(text: str, path: str) -> PolicySource:
    """Parse a TOML policy file. Problems carry their line where it is known."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MAX_DOTS_IN_LINE:
            raise make_error(path, number, f"a line has at most {_MAX_DOTS_IN_LINE} dots")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise make_error(path, 0, f"it is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        found = _AT_LINE.search(str(error))
        raise make_error(path, int(found[1]) if found else 0, f"this is not TOML: {error}") from None
    lines = _find_lines(text)
    return PolicySource(path, _TomlConverter(PolicySource(path, None, lines)).convert(value, ()), lines)


def _find_lines(text: str) -> dict[DocumentPath, int]:
    """Return the lines of tables, and of keys that begin a line: near enough to find a place by eye."""
    lines: dict[DocumentPath, int] = {(): 1}
    counts: dict[DocumentPath, int] = {}
    table: DocumentPath = ()
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _TABLE.match(line):
            table = tuple(found[2].split("."))
            lines.setdefault(table, number)
            if found[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
                lines[table] = number
        elif found := _ENTRY.match(line):
            lines.setdefault((*table, found[1]), number)
    return lines


class _TomlConverter:
    """The same bounds for what TOML gave, and its times as the texts that they were."""

    def __init__(self, source: PolicySource) -> None:
        self._source = source
        self._nodes = 0

    def convert(self, value: Any, location: DocumentPath) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._make_error(location, f"it has more than {MAX_NODES:,} values")
        if len(location) > MAX_DEPTH:
            raise self._make_error(location, f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            entries = cast(dict[str, Any], value)
            return {key: self.convert(item, (*location, key)) for key, item in entries.items()}
        if isinstance(value, list):
            return [self.convert(item, (*location, index)) for index, item in enumerate(cast(list[Any], value))]
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= MAX_INTEGER):
            raise self._make_error(location, "this number is not read as the same everywhere")
        return value

    def _make_error(self, location: DocumentPath, reason: str) -> PolicyFileError:
        return PolicyFileError([self._source.make_problem(location, reason)])
