"""The statements of the log, by their names in `queries.sql`."""

from pathlib import Path

from ..named_queries import read_queries

QUERIES = read_queries(Path(__file__).with_name("queries.sql"))
#: Appends of several runs, and the same with the rows of lists that they change.
QUERIES["append_many"] = QUERIES["appending"] + QUERIES["appended"]
QUERIES["append_listed"] = f"{QUERIES['appending']}, {QUERIES['listing']}{QUERIES['appended']}"
