"""Archive runs and bring them back, for `interlock runs`."""

import getpass
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from ...audit.archive import ArchivableLog, ArchiveOptions, archive_run, list_archivable, restore_run
from ...audit.signed_checkpoint import SignedCheckpoint
from ...domain.errors import LogError
from ...domain.event import LogEntry
from ...rendering.text import pluralize
from ...rendering.times import format_duration
from ...storage.removal import RemovedRun
from ..config.audit_keys import load_signing
from ..config.logs import open_log, resolve_run, shorten_id
from ..display.output import echo, echo_error, echo_json, echo_list
from ..exit_codes import ExitCode


async def archive_runs(
    log_path: Path | None, run_ref: str, before_seconds: float, options: ArchiveOptions, as_json: bool
) -> ExitCode:
    """Archive one run, or all that ended so long ago. One that cannot be archived stays, and is named."""
    archived: list[RemovedRun] = []
    problems: list[LogError] = []
    async with open_log(log_path) as opened:
        log = cast(ArchivableLog, opened)
        if run_ref:
            run_ids = [await resolve_run(log, run_ref)]
        else:
            run_ids = await list_archivable(log, time.time_ns() - round(before_seconds * 1e9))
        for run_id in run_ids:
            try:
                archived.append(await archive_run(log, run_id, options))
            except LogError as error:
                problems.append(error)
    if as_json:
        echo_json({"archived": archived, "problems": [*map(str, problems)]})
    else:
        for each in archived:
            echo(f"{each.run_id}  {pluralize(each.event_count, 'event')}  {each.file}")
        echo(f"{pluralize(len(archived), 'run')} archived." if archived or problems else "No runs to archive.")
    for problem in problems:
        echo_error(problem)
    return ExitCode.FAILED if problems else ExitCode.OK


async def restore_archive(log_path: Path | None, file: Path, as_json: bool) -> None:
    """Bring one run back."""
    async with open_log(log_path) as opened:
        run_id = await restore_run(cast(ArchivableLog, opened), file)
    if as_json:
        echo_json({"run_id": run_id})
    else:
        echo(f"{run_id} is in the log again. {file} is still there.")


async def list_archived(log_path: Path | None, limit: int, as_json: bool) -> None:
    """List the runs that were archived, and where they are."""
    async with open_log(log_path) as opened:
        removed = (await cast(ArchivableLog, opened).removed_runs())[::-1][:limit]
    now = time.time_ns()
    rows = [
        (shorten_id(each.run_id), each.state, each.agent, format_duration(now - each.started_at), each.file)
        for each in removed
    ]
    echo_list(as_json, removed, ("RUN", "STATE", "AGENT", "STARTED", "FILE"), rows, "No archived runs.")


def make_options(folder: Path, *, sign: bool) -> ArchiveOptions:
    """Return the options of archives that this user makes."""
    return ArchiveOptions(folder=folder.absolute(), by=getpass.getuser(), sign=_load_signer() if sign else None)


def _load_signer() -> Callable[[str, Sequence[LogEntry]], SignedCheckpoint | None]:
    signing, key_path = load_signing()
    return lambda run_id, entries: signing.sign_run(key_path, run_id, entries)
