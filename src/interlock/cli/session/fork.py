"""Forks a run, and exports a run as a test."""

from pathlib import Path

from ...replay.export_test import export_test as render_test
from ...runs import fork as forking
from ...storage.file_artifacts import FileArtifacts
from ..config.logs import add_log_option, find_run_files, open_log, resolve_run, shorten_id
from ..config.user_paths import find_user_paths, write_new_file
from ..display.output import echo, echo_json


async def fork_run(log_path: Path | None, run_ref: str, at: int | None, as_json: bool) -> None:
    async with open_log(log_path) as log:
        run_id = await resolve_run(log, run_ref)
        new_id = await forking.fork(log, run_id, at)
    if as_json:
        echo_json({"run_id": new_id, "forked_from": run_id})
        return
    echo(
        f"{shorten_id(new_id)} has what {shorten_id(run_id)} had up to there."
        " Nothing was executed, and files are as they are now."
    )
    echo(f"To go on with it: {add_log_option(f'interlock runs resume {shorten_id(new_id)}', log_path)}")


async def export_run_test(log_path: Path | None, run_ref: str, output: Path, agent: str, as_json: bool) -> None:
    async with open_log(log_path) as log:
        run_id = await resolve_run(log, run_ref)
        entries = await log.read(run_id)
    artifacts = find_run_files(log_path, find_user_paths()).artifacts
    source = await render_test(entries, FileArtifacts(artifacts) if artifacts.is_dir() else None, agent=agent)
    write_new_file(output, [source.encode()])
    if as_json:
        echo_json({"run_id": run_id, "path": str(output)})
    else:
        echo(f"{output}: run {shorten_id(run_id)} as a test. Look through it before you share it.")
