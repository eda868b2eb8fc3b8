"""Archive runs, bring them back, and erase them, for `interlock runs`."""

import getpass
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import typer

from ...audit.archive import ArchivableLog, ArchiveOptions, archive_run, list_archivable, restore_run
from ...audit.erase import ErasureOptions, erase_run
from ...audit.signed_checkpoint import SignedCheckpoint
from ...domain.errors import ConfigurationError, LogError
from ...domain.event import LogEntry
from ...rendering.text import pluralize
from ...rendering.times import format_duration
from ...storage.removal import RemovedRun, describe_removed
from ..config.audit_keys import load_signing
from ..config.logs import match_run, open_artifacts, open_log, resolve_run, shorten_id
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


async def erase(log_path: Path | None, run_ref: str, reason: str, yes: bool, as_json: bool) -> ExitCode:
    """Erase one run with its child runs, after a confirmation."""
    async with open_log(log_path) as opened:
        log = cast(ArchivableLog, opened)
        run_id = match_run(await log.run_ids(), run_ref)
        if not yes:
            _confirm_erasure(run_id)
        options = ErasureOptions(by=getpass.getuser(), reason=reason, artifacts=open_artifacts(log_path))
        erasure = await erase_run(log, run_id, options)
    if as_json:
        echo_json(erasure)
    else:
        for each in erasure.runs:
            echo(f"{describe_removed(each)}. {pluralize(each.event_count, 'event')}.")
        deleted = pluralize(erasure.deleted_artifacts, "artifact")
        echo(f"{deleted} deleted, {erasure.shared_artifacts} kept for other runs.")
    if erasure.problem:
        echo_error(ConfigurationError(f"Artifacts were not deleted: {erasure.problem}."))
    return ExitCode.FAILED if erasure.problem else ExitCode.OK


def _confirm_erasure(run_id: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigurationError("Erasing a run needs a confirmation. Pass --yes. Nothing was erased.")
    if not typer.confirm(f"Erase {run_id} for good? It cannot be restored.", default=False, err=True):
        raise ConfigurationError("Nothing was erased.")


async def list_archived(log_path: Path | None, limit: int, as_json: bool) -> None:
    """List the runs that were archived, and where they are, and those that were erased, and why."""
    async with open_log(log_path) as opened:
        removed = (await cast(ArchivableLog, opened).removed_runs())[::-1][:limit]
    now = time.time_ns()
    rows = [
        (
            shorten_id(each.run_id),
            each.state,
            each.agent,
            format_duration(now - each.started_at),
            describe_removed(each).removeprefix(f"{each.run_id} was ") if each.is_erased else each.file,
        )
        for each in removed
    ]
    echo_list(as_json, removed, ("RUN", "STATE", "AGENT", "STARTED", "FILE"), rows, "No archived runs.")


def make_options(folder: Path, *, sign: bool) -> ArchiveOptions:
    """Return the options of archives that this user makes."""
    return ArchiveOptions(folder=folder.absolute(), by=getpass.getuser(), sign=_load_signer() if sign else None)


def _load_signer() -> Callable[[str, Sequence[LogEntry]], SignedCheckpoint | None]:
    signing, key_path = load_signing()
    return lambda run_id, entries: signing.sign_run(key_path, run_id, entries)
