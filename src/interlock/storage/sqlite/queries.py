"""The statements of the log, by their names in `queries.sql`."""

from pathlib import Path

from ..named_queries import read_queries

QUERIES = read_queries(Path(__file__).with_name("queries.sql"))
