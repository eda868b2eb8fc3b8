"""`interlock storage`: how a log is stored, and its upgrade."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from ...domain.errors import LogError
from ...storage.sqlite.database import SCHEMA_VERSION
from ...storage.sqlite.log import SqliteLog
from ..config.logs import find_run_files, open_log_file
from ..config.user_paths import find_user_paths
from ..display.output import echo, echo_result
from ..exit_codes import format_exit_codes
from ..options import JsonOption, LogOption, create_app

_EXITS = format_exit_codes(ok="done", usage="bad usage, or no such log")

app = create_app(_EXITS, is_group=True)

_T = TypeVar("_T")


class _StorageStatus(msgspec.Struct, frozen=True):
    path: str
    schema_version: int
    size_bytes: int
    runs: int
    events: int
    old_events: int


@app.callback()
def storage() -> None:
    """Show how a log is stored, and upgrade it.

    Logs of older versions are read as they are. An upgrade makes their file smaller; what they record stays the same.
    """


@app.command(epilog=_EXITS)
def status(log: LogOption = None, as_json: JsonOption = False) -> None:
    """Show the size of a log, and whether an upgrade would make it smaller."""
    path = _find_path(log)
    found = _run_with_file(log, lambda opened: _read_status(opened, str(path), path.stat().st_size))
    hint = "  `interlock storage upgrade` stores them in less space." if found.old_events else ""
    echo_result(
        as_json,
        msgspec.to_builtins(found),
        f"{found.path}: {found.size_bytes:,} bytes, schema {found.schema_version}",
        f"  {found.runs:,} runs, {found.events:,} events, {found.old_events:,} of them stored by older versions",
        *([hint] if hint else []),
    )


@app.command(epilog=_EXITS)
def upgrade(log: LogOption = None, as_json: JsonOption = False) -> None:
    """Store the events of older versions in less space. Other processes may use the log meanwhile.

    The file itself gets smaller when no other process uses it.
    """
    path = _find_path(log)
    before = path.stat().st_size

    async def pack(opened: SqliteLog) -> tuple[int, int]:
        first = await opened.count_old_events()
        async for position in opened.pack_old_events():
            if not as_json:
                echo(f"packed up to event {position:,} of the log")
        return first, await opened.count_old_events()

    first, left = _run_with_file(log, pack)
    note = f"{left:,} rows are not events that Interlock wrote, and stay." if left else _shrink(path)
    after = path.stat().st_size
    echo_result(
        as_json,
        {"packed": first - left, "left": left, "bytes_before": before, "bytes_after": after, "note": note},
        f"{path}: {first - left:,} events packed; {before:,} bytes before, {after:,} now",
        *([f"  {note}"] if note else []),
    )


def _run_with_file(log: Path | None, work: Callable[[SqliteLog], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        async with open_log_file(log) as log_file:
            return await work(log_file)

    return asyncio.run(opened())


def _find_path(log: Path | None) -> Path:
    return find_run_files(log, find_user_paths()).log


async def _read_status(log: SqliteLog, path: str, size_bytes: int) -> _StorageStatus:
    return _StorageStatus(
        path=path,
        schema_version=SCHEMA_VERSION,
        size_bytes=size_bytes,
        runs=len(await log.run_ids()),
        events=await log.feed_position(),
        old_events=await log.count_old_events(),
    )


def _shrink(path: Path) -> str:
    """Give free space back to the file system. Return why that was not possible, or an empty text."""
    try:
        with closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        return f"The file was not made smaller: {error}. Upgrade again when no other process uses the log."
    except sqlite3.Error as error:
        raise LogError(f"cannot shrink the log {path}: {error}") from error
    return ""
