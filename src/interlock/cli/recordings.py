"""The events of recorded runs, from logs and from exports. A run that is not what was written is left out."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec

from ..domain.chain import Entry, decode_event
from ..domain.errors import ConfigurationError
from ..domain.event import Event
from ..history.export import read_export
from ..history.verify import verify
from ..log.sqlite import SqliteLog

MAX_EXPORT_BYTES = 256 << 20
_SQLITE = b"SQLite format 3\0"


class Recordings(msgspec.Struct, frozen=True):
    events: list[Event]
    runs: int
    #: Runs that were left out, each with the reason.
    left_out: tuple[str, ...] = ()


def read_recordings(paths: Iterable[str]) -> Recordings:
    """`ConfigurationError` or `LogError` for what is neither a log nor an export."""
    runs: dict[str, list[Entry]] = {}
    for path in paths:
        found: dict[str, list[Entry]] = {}
        for entry in read_entries(path):
            found.setdefault(entry.run_id, []).append(entry)
        # A run that is in two files is read once.
        runs = {**found, **runs}
    flaws = {run_id: audit.flaw for run_id, entries in runs.items() if (audit := verify(entries, run_id)).flaw}
    return Recordings(
        [decode_event(entry) for run_id, entries in runs.items() if run_id not in flaws for entry in entries],
        len(runs) - len(flaws),
        tuple(f"{run_id or 'a run without a name'}: {flaw.message}" for run_id, flaw in flaws.items() if flaw),
    )


def read_entries(path: str) -> Iterable[Entry]:
    """All events of a log or of an export, as they are: `verify` says whether they are what was written."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is not a file; name a log (runs.db) or an export (runs.ndjson).")
        with open(path, "rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                check_is_log(path)
                return asyncio.run(_from_log(path))
            if status.st_size > MAX_EXPORT_BYTES:
                raise ConfigurationError(f"{path} is larger than {MAX_EXPORT_BYTES:,} bytes; export fewer runs.")
            file.seek(0)
            return read_export(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be read: {reason}. Name a log or an export.") from None


def check_is_log(path: str) -> None:
    """Opening a log makes it a durable one, and a file of somebody else must stay as it is."""
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. Name a log.") from None
    if version == (0,):
        raise ConfigurationError(f"{path} is an SQLite file, but not a log.")


def as_stored(entry: Entry) -> Entry:
    """Whoever changes a log with other tools may leave texts where bytes were: a flaw to find, not to stumble on."""
    seq, body, head_hash = cast(tuple[Any, Any, Any], (entry.seq, entry.body, entry.hash))
    if type(seq) is int and type(body) is bytes and type(head_hash) is bytes:
        return entry
    return Entry(entry.run_id, seq if type(seq) is int else -1, _bytes(body), _bytes(head_hash))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


async def _from_log(path: str) -> list[Entry]:
    async with SqliteLog(path) as log:
        return [as_stored(entry) for run_id in await log.run_ids() for entry in await log.read(run_id)]
