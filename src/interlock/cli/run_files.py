"""Where a run is kept: its log, and beside it what is too long for an event."""

from pathlib import Path

import msgspec

from .places import Places


class RunFiles(msgspec.Struct, frozen=True):
    log: Path
    artifacts: Path


def run_files(named: Path | None, places: Places) -> RunFiles:
    """For the log that was named with `--log` or `INTERLOCK_LOG`, else for the usual one. Nothing is made."""
    if named is None:
        return RunFiles(places.log, places.artifacts)
    log = named.absolute()
    return RunFiles(log, log.with_name(f"{log.name}.artifacts"))
