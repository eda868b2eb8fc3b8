"""`interlock runs erase`."""

import json
from pathlib import Path

import pytest

from interlock import Attachment, FileArtifacts, Runner, SqliteLog
from tests.cli.conftest import Run
from tests.runs.support import agent_of


@pytest.fixture
async def log_path(tmp_path: Path) -> Path:
    """A log with two runs that are over, an artifact of the first one, and one of both."""
    path = tmp_path / "runs.db"
    artifacts = FileArtifacts(tmp_path / "runs.db.artifacts")
    async with SqliteLog(path) as log, Runner(agent_of("Done.", "Done."), log=log, artifacts=artifacts) as runner:
        await (await runner.start(["Look.", Attachment(b"%PDF-1.4")], run_id="run_1")).result()
        await (await runner.start("Go.", run_id="run_2")).result()
    return path


def count_artifacts(log_path: Path) -> int:
    return sum(file.is_file() for file in Path(f"{log_path}.artifacts").rglob("*"))


def test_a_run_is_erased_and_says_so(cli: Run, log_path: Path) -> None:
    assert count_artifacts(log_path) == 2
    erased = cli("runs", "erase", "run_1", "--reason", "asked for", "--yes", "--log", log_path)
    assert (erased.exit_code, "1 artifact deleted, 1 kept" in erased.output) == (0, True)
    assert count_artifacts(log_path) == 1

    for command in (
        ("runs", "show"),
        ("runs", "events"),
        ("audit", "verify"),
        ("audit", "export"),
        ("runs", "archive"),
    ):
        refused = cli(*command, "run_1", "--log", log_path)
        assert (refused.exit_code, "was erased at" in refused.output) == (2, True), command
    listed = cli("runs", "list", "--archived", "--log", log_path).output
    assert "erased at" in listed
    assert "asked for" in listed
    assert "run_1" not in cli("runs", "list", "--log", log_path).output

    verified = cli("audit", "verify", log_path)
    assert (verified.exit_code, "run_1 was erased at" in verified.output) == (0, True)
    assert "run_1:" not in verified.output
    rows = {row["run_id"]: row for row in json.loads(cli("audit", "verify", log_path, "--json").output)}
    assert (rows["run_1"]["ok"], rows["run_1"]["erased"]["reason"]) == (None, "asked for")


def test_erasing_needs_a_confirmation_and_a_reason(cli: Run, log_path: Path) -> None:
    refused = cli("runs", "erase", "run_1", "--reason", "asked for", "--log", log_path)
    assert (refused.exit_code, "Pass --yes" in refused.output) == (2, True)
    assert cli("runs", "erase", "run_1", "--yes", "--log", log_path).exit_code == 2
    assert cli("runs", "erase", "run_1", "--reason", "", "--yes", "--log", log_path).exit_code == 2
    assert cli("runs", "show", "run_1", "--log", log_path).exit_code == 0
