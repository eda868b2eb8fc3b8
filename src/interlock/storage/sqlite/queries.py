"""The statements of the log, by their names in `queries.sql`."""

import re
from pathlib import Path

_NAMED = re.compile(r"^-- name: (\w+)\n((?:(?!--).+\n)+)", re.MULTILINE)

QUERIES: dict[str, str] = dict(_NAMED.findall(Path(__file__).with_name("queries.sql").read_text()))
