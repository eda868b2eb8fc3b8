"""The log that a command looks into, and the run that it is asked about. Looking never makes a log."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import typer

from ..domain.chain import Entry
from ..domain.errors import ConfigurationError, InterlockError
from ..log.sqlite import SqliteLog
from .places import find_places
from .recordings import as_stored, check_is_log

_MAX_NAMED = 10
_PREFIX = "run_"


class RecordedRun(NamedTuple):
    run_id: str
    entries: list[Entry]


def log_path(named: Path | None) -> Path:
    """What was named with `--log` or `INTERLOCK_LOG`, else where runs are kept."""
    return find_places().log if named is None else named


def read_run(named: Path | None, wanted: str) -> RecordedRun:
    """`ConfigurationError` in words when there is no such run."""
    return asyncio.run(_read_run(_existing(log_path(named)), wanted))


def find_run(run_ids: Sequence[str], wanted: str) -> str:
    """The one run that is meant: by its id, by the first letters of it, or the `last` one. Oldest first."""
    if wanted == "last" and run_ids:
        return run_ids[-1]
    if wanted in run_ids:
        return wanted
    found = [run_id for run_id in run_ids if wanted and run_id.startswith((wanted, f"{_PREFIX}{wanted}"))]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(f"{wanted} may be any of {len(found):,} runs: {_listed(found)}. Write more of it.")
    there = f"There are: {_listed(run_ids)}." if run_ids else "There are no runs yet."
    raise ConfigurationError(f"There is no run {wanted[:80]!r}. {there}")


def complete_run(incomplete: str) -> list[str]:
    """For a shell: whatever goes wrong, there is nothing to complete."""
    try:
        named = os.environ.get("INTERLOCK_LOG")
        run_ids = asyncio.run(_run_ids(_existing(log_path(Path(named) if named else None))))
    except (InterlockError, OSError):
        return []
    return [name for name in ("last", *reversed(run_ids)) if name.startswith(incomplete)]


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ConfigurationError(f"There are no runs yet: {path} does not exist. `--log` names another log.")
    check_is_log(str(path))
    return path


async def _read_run(path: Path, wanted: str) -> RecordedRun:
    async with SqliteLog(path) as log:
        run_id = find_run(await log.run_ids(), wanted)
        return RecordedRun(run_id, [as_stored(entry) for entry in await log.read(run_id)])


async def _run_ids(path: Path) -> list[str]:
    async with SqliteLog(path) as log:
        return await log.run_ids()


def _listed(run_ids: Sequence[str]) -> str:
    """The newest first."""
    named = ", ".join(list(reversed(run_ids))[:_MAX_NAMED])
    return named if len(run_ids) <= _MAX_NAMED else f"{named} and {len(run_ids) - _MAX_NAMED:,} more"


LogFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        envvar="INTERLOCK_LOG",
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
