"""Statements in a file, each behind a line `-- name: NAME`. A line of comment ends a statement."""

import re
from pathlib import Path

_NAMED = re.compile(r"^-- name: (\w+)\n((?:(?!--).+\n)+)", re.MULTILINE)


def read_queries(path: Path) -> dict[str, str]:
    """Return the statements of a file by their names."""
    return dict(_NAMED.findall(path.read_text()))
