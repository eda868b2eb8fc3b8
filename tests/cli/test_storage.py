"""`interlock storage`: the size of a log, and the upgrade of an old one."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.log_rows import unpack_events

from .conftest import Run, recorded_log


@pytest.fixture
def old(home: Path) -> Path:
    """A log as an older version stored it."""
    log = home / "runs.db"
    for number in range(20):
        recorded_log(log, "make", "make test", run_id=f"run_{number}")
    with closing(sqlite3.connect(log)) as connection, connection:
        unpack_events(connection)
    return log


def test_an_upgrade_makes_an_old_log_smaller_and_changes_nothing(cli: Run, old: Path) -> None:
    before = cli("audit", "verify", old, "--json").stdout
    status = json.loads(cli("storage", "status", "--log", old, "--json").stdout)
    assert status["old_events"] == status["events"] > 0

    upgraded = json.loads(cli("storage", "upgrade", "--log", old, "--json").stdout)

    assert (upgraded["packed"], upgraded["left"], upgraded["note"]) == (status["events"], 0, "")
    assert upgraded["bytes_after"] < upgraded["bytes_before"] / 1.5
    assert cli("audit", "verify", old, "--json").stdout == before
    assert "0 of them stored by older versions" in cli("storage", "status", "--log", old).stdout
    assert "0 events packed" in cli("storage", "upgrade", "--log", old).stdout


def test_a_log_in_use_is_upgraded_and_shrinks_later(cli: Run, old: Path) -> None:
    with closing(sqlite3.connect(old, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        first = cli("storage", "upgrade", "--log", old)
    second = json.loads(cli("storage", "upgrade", "--log", old, "--json").stdout)

    assert first.exit_code == 0
    assert "events packed" in first.stdout
    assert second["bytes_after"] < second["bytes_before"] or "not made smaller" not in first.stdout


def test_a_log_that_is_not_there_is_refused(cli: Run, tmp_path: Path) -> None:
    result = cli("storage", "status", "--log", tmp_path / "none.db")

    assert (result.exit_code, "does not exist" in result.stderr) == (2, True)
