"""What tests of accounts, keys and sign-ins share: the server's database, and a clock that stands still."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.server.core.database import Database

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
    database = Database(path)
    try:
        yield database
    finally:
        database.close()


def everything_kept(folder: Path) -> bytes:
    """All bytes of all files, also of what is not yet in the main one."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
