"""What was deleted from a log or written into it by hand is said: no command falls over it."""

import json
from pathlib import Path

import pytest

from tests.log_rows import edit_events

from .conftest import Run, recorded_log

GONE = "the log knows run_one, and none of its events is there"


@pytest.fixture
def log(home: Path) -> Path:
    return recorded_log(home / "runs.db", "make", run_id="run_one")


def test_a_run_whose_events_were_all_deleted_is_not_what_was_written(cli: Run, log: Path) -> None:
    edit_events(log, "DELETE FROM events")

    for words in (("last", "--log", log), (log,)):
        result = cli("audit", "verify", *words)
        assert result.exit_code == 1
        assert "modified: the log knows this run, and none of its events is there" in result.stdout
        assert "unbroken" not in result.stdout


def test_one_emptied_run_among_others_is_found(cli: Run, log: Path) -> None:
    recorded_log(log, "make", run_id="run_two")
    edit_events(log, "DELETE FROM events WHERE run = (SELECT number FROM runs WHERE run_id = 'run_one')")

    result = cli("audit", "verify", log, "--json")

    assert result.exit_code == 1
    assert {run["run_id"]: run["ok"] for run in json.loads(result.stdout)} == {"run_one": False, "run_two": True}


@pytest.mark.parametrize("command", [("runs", "show"), ("runs", "events"), ("runs", "watch"), ("runs", "fork")])
def test_a_run_without_events_is_refused_in_words(cli: Run, log: Path, command: tuple[str, str]) -> None:
    edit_events(log, "DELETE FROM events")

    result = cli(*command, "last", "--log", log)

    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (2, True)
    assert GONE in result.stderr


def test_a_run_whose_name_was_deleted_is_found_in_its_file(cli: Run, log: Path) -> None:
    recorded_log(log, "make", run_id="run_two")
    edit_events(log, "DELETE FROM runs WHERE run_id = 'run_one'")

    result = cli("audit", "verify", log)

    assert result.exit_code == 1
    assert "was modified: 1 run with events, but no name" in result.stderr


def test_a_snapshot_shows_that_the_end_was_cut_off(cli: Run, log: Path) -> None:
    edit_events(
        log,
        "INSERT INTO snapshots SELECT 'run_one', seq, hash, x'', 0 FROM events ORDER BY seq DESC LIMIT 1",
        "DELETE FROM events WHERE seq > 3",
    )

    result = cli("audit", "verify", "last", "--log", log)

    assert result.exit_code == 1
    assert "run_one: modified: events 4 to " in result.stdout
    assert "are missing at the end: there is a snapshot of event " in result.stdout


def test_what_cannot_be_seen_without_a_checkpoint_is_said(cli: Run, log: Path) -> None:
    whole = cli("audit", "verify", "last", "--log", log, "--json")
    checkpoint = json.loads(whole.stdout)[0]["checkpoint"]
    edit_events(log, "DELETE FROM events WHERE seq > 3")

    alone = cli("audit", "verify", "last", "--log", log)
    compared = cli("audit", "verify", "last", "--log", log, "--checkpoint", checkpoint)

    assert (alone.exit_code, compared.exit_code) == (0, 1)
    assert "cut off at the end are detected only with an earlier checkpoint" in alone.stdout
    assert json.loads(whole.stdout)[0]["end_checked"] is False
    assert "are missing at the end" in compared.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET run_id = x'ff00'",
        "UPDATE events SET seq = 'x' WHERE seq = 3",
        "UPDATE events SET body = 7",
        "INSERT INTO snapshots VALUES ('run_one', 'x', 5, 'x', 'x')",
    ],
)
def test_what_was_written_into_it_by_hand_breaks_no_check(cli: Run, log: Path, statement: str) -> None:
    edit_events(log, statement)

    for words in (("last", "--log", log), (log,)):
        result = cli("audit", "verify", *words)
        assert result.exit_code == (0 if "snapshots" in statement else 1)
        assert isinstance(result.exception, SystemExit | None)
