"""The log that commands about runs open, and the run in it that is meant.

A run inside a call of another one has that one's id, a dot and letters of its own: `1f2e3d4c.ab12` means it by the
first letters of both. Without a dot a run is meant that is inside no other, so its short id stays unique.
"""

import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from os import environ
from pathlib import Path

from ..domain.errors import ConfigurationError
from ..log.sqlite import SqliteLog
from .logs import find_run, log_path
from .recordings import check_is_log

#: Ids that we made ourselves; others are shown in full.
_OURS = re.compile(r"(?:run|act)_([0-9a-f]{8})[0-9a-f]{24}((?:\.[0-9a-f]{12})*)")
_INSIDE_CHARS = 4


@asynccontextmanager
async def opened(named: Path | None) -> AsyncGenerator[SqliteLog]:
    """The log, which has to be there: looking makes none."""
    path = log_path(named)
    if not path.exists():
        raise ConfigurationError(f"There are no runs yet: {path} does not exist. `--log` names another log.")
    check_is_log(str(path))
    async with SqliteLog(path) as log:
        yield log


def has_log(named: Path | None) -> bool:
    """False only where no run was kept yet in the usual place. A log that was named has to be there."""
    return named is not None or log_path(None).exists()


async def named_run(log: SqliteLog, wanted: str) -> str:
    """`ConfigurationError` in words when there is no such run, or more than one."""
    run_ids = await log.run_ids()
    if wanted in run_ids:
        return wanted
    outer = [run_id for run_id in run_ids if len(_parts(run_id)) == 1]
    if wanted == "last":
        return find_run(outer or run_ids, wanted)
    found = [run_id for run_id in run_ids if _is_meant(run_id, wanted)]
    return found[0] if len(found) == 1 else find_run(found or run_ids, wanted)


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
    if named is None or str(named) == environ.get("INTERLOCK_LOG"):
        return command
    return f"{command} --log {shlex.quote(str(named))}"


def _parts(run_id: str) -> list[str]:
    return run_id.split(".") if _OURS.fullmatch(run_id) else [run_id]


def _is_meant(run_id: str, wanted: str) -> bool:
    parts, given = _parts(run_id), wanted.split(".") if "." in wanted else [wanted]
    if not wanted or len(parts) != len(given):
        return False
    first, *inside = zip(parts, given, strict=True)
    return first[0].startswith((first[1], f"run_{first[1]}")) and all(part.startswith(some) for part, some in inside)
