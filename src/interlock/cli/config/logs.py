"""The log that a command looks into, and the run in it that is meant. Looking never makes a log.

A run inside a call of another one has that one's id, a dot and letters of its own: `1f2e3d4c.ab12` means it by the
first letters of both. Without a dot a run is meant that is inside no other, so its short id stays unique.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from ...domain.errors import ConfigurationError, InterlockError, LogCorruptError
from ...storage.sqlite.log import SqliteLog
from .places import Places, find_places
from .recordings import RecordedRun, check_is_log, stored_run

_MAX_NAMED = 10
_VARIABLE = "INTERLOCK_LOG"
_PREFIX = "run_"
#: Ids that we made ourselves; others are shown in full.
_OURS = re.compile(r"(?:run|act)_([0-9a-f]{8})[0-9a-f]{24}((?:\.[0-9a-f]{12})*)")
_INSIDE_CHARS = 4
#: Fewer letters after `run_` or `act_` name nothing: what is meant may be gone, and something else begin so, too.
MIN_LETTERS = 4


class RunFiles(msgspec.Struct, frozen=True):
    """Where a run is kept: its log, and beside it what is too long for an event."""

    log: Path
    artifacts: Path


def run_files(named: Path | None, places: Places) -> RunFiles:
    """For the log that was named with `--log` or `INTERLOCK_LOG`, else for the usual one. Nothing is made."""
    if named is None:
        return RunFiles(places.log, places.artifacts)
    log = named.absolute()
    return RunFiles(log, log.with_name(f"{log.name}.artifacts"))


def has_log(named: Path | None) -> bool:
    """False only where no run was kept yet in the usual place. A log that was named has to be there."""
    return named is not None or find_places().log.exists()


@asynccontextmanager
async def opened(named: Path | None) -> AsyncGenerator[SqliteLog]:
    """The log, which has to be there: looking makes none."""
    path = find_places().log if named is None else named
    if not path.exists():
        raise ConfigurationError(f"There are no runs yet: {path} does not exist. `--log` names another log.")
    check_is_log(str(path))
    async with SqliteLog(path) as log:
        yield log


def read_run(named: Path | None, wanted: str) -> RecordedRun:
    """`ConfigurationError` in words when there is no such run."""

    async def read() -> RecordedRun:
        async with opened(named) as log:
            return await stored_run(log, find_run(await log.run_ids(), wanted))

    return asyncio.run(read())


async def named_run(log: SqliteLog, wanted: str) -> str:
    """`LogCorruptError` for one that has no events any more: there is nothing that could be done with it."""
    run_id = find_run(await log.run_ids(), wanted)
    if not await log.read(run_id, limit=1):
        raise LogCorruptError(f"the log knows {run_id}, and none of its events is there: they were deleted")
    return run_id


def find_run(run_ids: Sequence[str], wanted: str) -> str:
    """The one run that is meant: by its id, by the first letters of it, or the `last` one. Oldest first.

    `ConfigurationError` in words when there is no such run, or more than one.
    """
    outer = [run_id for run_id in run_ids if not around(run_id)]
    if wanted == "last" and run_ids:
        return (outer or run_ids)[-1]
    if wanted in run_ids:
        return wanted
    found = [run_id for run_id in run_ids if wanted and _is_meant(run_id, wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(f"{wanted} may be any of {len(found):,} runs: {_listed(found)}. Write more of it.")
    there = f"There are: {_listed(outer or run_ids)}." if run_ids else "There are no runs yet."
    if run_ids and len(wanted.removeprefix(_PREFIX)) < MIN_LETTERS:
        there = f"At least {MIN_LETTERS} letters of its id name one. {there}"
    raise ConfigurationError(f"There is no run {wanted[:80]!r}. {there}")


def is_inside(run_id: str, other: str) -> bool:
    """Is it a run inside a call of the other one, however deep?"""
    return run_id.startswith(f"{other}.")


def around(run_id: str) -> list[str]:
    """The runs that it is inside of, the outermost first; nothing for one that stands alone."""
    parts = _parts(run_id)
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def short(name: str) -> str:
    """As much of an id as commands need to tell it from others."""
    ours = _OURS.fullmatch(name)
    if ours is None:
        return name
    return ".".join((ours[1], *(part[:_INSIDE_CHARS] for part in ours[2].split(".")[1:])))


def with_log(command: str, named: Path | None) -> str:
    """A command to type next, about the same log."""
    if named is None or str(named) == os.environ.get(_VARIABLE):
        return command
    return f"{command} --log {shlex.quote(str(named))}"


def complete_run(incomplete: str) -> list[str]:
    """For a shell: whatever goes wrong, there is nothing to complete."""

    return completed(incomplete, _PREFIX, SqliteLog.run_ids)


def completed(incomplete: str, prefix: str, names: Callable[[SqliteLog], Awaitable[list[str]]]) -> list[str]:
    """The ids that begin so, the newest first; the short ones, unless the prefix was typed."""

    async def read() -> list[str]:
        async with opened(Path(named) if named else None) as log:
            return await names(log)

    named = os.environ.get(_VARIABLE)
    try:
        found = asyncio.run(read())
    except (InterlockError, OSError):
        return []
    shown = [name if incomplete.startswith(prefix) else short(name) for name in reversed(found)]
    return [name for name in ("last", *shown) if name.startswith(incomplete)]


def _parts(run_id: str) -> list[str]:
    return run_id.split(".") if _OURS.fullmatch(run_id) else [run_id]


def _is_meant(run_id: str, wanted: str) -> bool:
    parts = _parts(run_id)
    given = wanted.split(".") if len(parts) > 1 else [wanted]
    if len(parts) != len(given):
        return False
    first, *inside = zip(parts, given, strict=True)
    return begins_so(*first, _PREFIX) and all(part.startswith(some) for part, some in inside)


def begins_so(name: str, wanted: str, prefix: str) -> bool:
    """Is it the id, or its beginning? The prefix may be left out, and is not counted."""
    whole, letters = name.removeprefix(prefix), wanted.removeprefix(prefix)
    return bool(letters) and (whole == letters or (len(letters) >= MIN_LETTERS and whole.startswith(letters)))


def _listed(run_ids: Sequence[str]) -> str:
    """The newest first."""
    named = ", ".join(short(run_id) for run_id in list(reversed(run_ids))[:_MAX_NAMED])
    return named if len(run_ids) <= _MAX_NAMED else f"{named} and {len(run_ids) - _MAX_NAMED:,} more"


LogFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        envvar=_VARIABLE,
        help="The log with the runs. Default: runs.db in the state folder.",
        show_default=False,
    ),
]
RunName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its id, the first letters of it, or `last`.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
