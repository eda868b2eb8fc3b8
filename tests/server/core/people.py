"""What tests of accounts, keys and sign-ins share: the server's database, and a clock that stands still."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from interlock.server.core.database.interface import Database
from tests.logs import find_postgres, open_database

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

PASSWORD = "correct horse battery"


class FakeClock:
    """Nanoseconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.at = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.at


@contextmanager
def opened(path: str | Path = ":memory:") -> Generator[Database]:
    database = open_database(path)
    try:
        yield database
    finally:
        database.close()


def everything_kept(folder: Path) -> bytes:
    """All bytes of all files, also of what is not yet in the main one; or of all rows in Postgres."""
    found = find_postgres(folder / "server.db")
    if found is not None:
        return _everything_in(*found)
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def _everything_in(url: str, schema: str) -> bytes:
    owner = url.replace("server@", "postgres@")
    with psycopg.connect(owner, autocommit=True, options=f"-c search_path={schema}") as editor:
        tables = editor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        rows = [row for (table,) in tables for row in editor.execute(f"TABLE {table}".encode()).fetchall()]
    values = (value for row in rows for value in row)
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)
