"""A new run from a place in another one, and a run as a test."""

from pathlib import Path

from ...replay import export_test as exporting
from ...runs import fork as forking
from ...storage.file_artifacts import FileArtifacts
from ..config.logs import named_run, opened, run_files, short, with_log
from ..config.new_file import write_new
from ..config.places import find_places
from ..display.output import say, say_json


async def fork(named: Path | None, wanted: str, at: int | None, as_json: bool) -> None:
    async with opened(named) as log:
        run_id = await named_run(log, wanted)
        new = await forking.fork(log, run_id, at)
    if as_json:
        say_json({"run_id": new, "forked_from": run_id})
        return
    say(f"{short(new)} has what {short(run_id)} had up to there. Nothing was executed, and files are as they are now.")
    say(f"To go on with it: {with_log(f'interlock runs resume {short(new)}', named)}")


async def export_test(named: Path | None, wanted: str, output: Path, agent: str, as_json: bool) -> None:
    async with opened(named) as log:
        run_id = await named_run(log, wanted)
        entries = await log.read(run_id)
    kept = run_files(named, find_places()).artifacts
    source = await exporting.export_test(entries, FileArtifacts(kept) if kept.is_dir() else None, agent=agent)
    write_new(output, [source.encode()])
    if as_json:
        say_json({"run_id": run_id, "path": str(output)})
    else:
        say(f"{output}: run {short(run_id)} as a test. Look through it before you share it.")
