"""`interlock runs archive` and `restore`."""

import json
from pathlib import Path

import pytest

from interlock import Runner, SqliteLog
from tests.cli.conftest import Run
from tests.runs.support import agent_of


@pytest.fixture
async def log_path(tmp_path: Path) -> Path:
    """A log with three runs that are over."""
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, Runner(agent_of("Done.", "Done.", "Done."), log=log) as runner:
        for number in range(3):
            await (await runner.start("Go.", run_id=f"run_{number}")).result()
    return path


def test_runs_are_archived_listed_and_restored(cli: Run, log_path: Path, tmp_path: Path) -> None:
    archived = cli("runs", "archive", "run_1", "--folder", tmp_path / "old", "--log", log_path, "--json")
    [record] = json.loads(archived.output)["archived"]
    assert record["file"] == str(tmp_path / "old" / "run_1.ndjson")

    listed = cli("runs", "list", "--archived", "--log", log_path)
    assert "run_1" in listed.output
    assert "COMPLETED" in listed.output.upper()
    for command in (("runs", "show"), ("runs", "events"), ("audit", "verify"), ("runs", "archive")):
        refused = cli(*command, "run_1", "--log", log_path)
        assert (refused.exit_code, "was archived to" in refused.output) == (2, True), command
    verified = cli("audit", "verify", log_path)
    assert (verified.exit_code, "run_1" in verified.output) == (0, False)
    assert cli("audit", "verify", record["file"]).exit_code == 0

    restored = cli("runs", "restore", record["file"], "--log", log_path)
    assert (restored.exit_code, "is in the log again" in restored.output) == (0, True)
    assert cli("runs", "show", "run_1", "--log", log_path).exit_code == 0
    again = cli("runs", "restore", record["file"], "--log", log_path)
    assert (again.exit_code, "is not archived" in again.output) == (2, True)


def test_only_old_runs_are_archived(cli: Run, log_path: Path, tmp_path: Path) -> None:
    assert "No runs to archive" in cli("runs", "archive", "--folder", tmp_path / "old", "--log", log_path).output
    assert not (tmp_path / "old").exists()
    assert cli("runs", "archive", "--before", "soon", "--log", log_path).exit_code == 2
    assert cli("runs", "restore", tmp_path / "nothing", "--log", log_path).exit_code == 2
