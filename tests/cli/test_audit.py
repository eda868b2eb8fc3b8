"""`interlock audit`: what was written can be taken elsewhere, and what was not is found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli.config.logs import match_run
from interlock.domain.errors import ConfigurationError
from tests.log_rows import edit_events

from .conftest import Run, exported, recorded_log


@pytest.fixture
def log(home: Path) -> Path:
    return recorded_log(home / "runs.db", "make", run_id="run_one")


def test_an_export_verifies_anywhere_in_both_forms(cli: Run, log: Path, tmp_path: Path) -> None:
    for form in ("ndjson", "json"):
        file = tmp_path / f"run.{form}"
        made = cli("audit", "export", "last", "--format", form, "-o", file, "--log", log, "--json")
        checked = cli("audit", "verify", file, "--json")
        assert (made.exit_code, checked.exit_code) == (0, 0)
        assert json.loads(checked.stdout)[0]["checkpoint"] == json.loads(made.stdout)["checkpoint"]
        assert file.stat().st_mode & 0o777 == 0o600


def test_standard_output_gets_the_stored_bytes_and_nothing_else(log: Path, tmp_path: Path) -> None:
    program = "from interlock.cli.main import main; main()"
    words = [sys.executable, "-c", program, "audit", "export", "run_one", "--log", str(log)]

    ended = subprocess.run(words, capture_output=True, check=False)

    assert ended.stdout == exported(log, tmp_path / "all.ndjson").read_bytes()
    assert b"in one unbroken chain\n  checkpoint " in ended.stderr


def test_a_file_that_is_there_is_not_written_over(cli: Run, log: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "new")

    for name in ("mine", "link"):
        result = cli("audit", "export", "last", "-o", tmp_path / name, "--log", log)
        assert (result.exit_code, "is there already" in result.stderr) == (2, True)

    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_the_first_flaw_is_said_in_words(cli: Run, log: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.ndjson"
    cli("audit", "export", "last", "-o", file, "--log", log)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2] + lines[3:]))

    result = cli("audit", "verify", file)

    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [
            "run_one: modified: event 2 is missing: event 3 is in its place",
            "  intact before it: 2 events",
        ],
    )


def test_an_event_that_is_nobodys_is_a_flaw_of_its_run(cli: Run, log: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.ndjson"
    cli("audit", "export", "last", "-o", file, "--log", log)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = b'{"hash":"00","event":{}}\n'
    file.write_bytes(b"".join(lines))

    found = json.loads(cli("audit", "verify", file, "--json").stdout)

    assert [(each["run_id"], each["flaw"]["seq"]) for each in found] == [("run_one", 3)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET body = 'text' WHERE seq = 3",
        "UPDATE events SET body = replace(body, 'm', 'n') WHERE seq = 3",
        "UPDATE events SET hash = 7 WHERE seq = 3",
        "UPDATE events SET seq = 'x' WHERE seq = 3",
        "UPDATE events SET seq = -1 WHERE seq = 3",
        "UPDATE events SET hash = x'00' WHERE seq = 3",
    ],
)
def test_whatever_was_written_into_a_log_is_a_flaw_in_words(cli: Run, log: Path, change: str) -> None:
    edit_events(log, change)

    result = cli("audit", "verify", "last", "--log", log)

    assert result.exit_code == 1
    assert "run_one: modified: " in result.stdout


def test_a_checkpoint_shows_a_tail_that_was_cut_off(cli: Run, log: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.ndjson"
    made = cli("audit", "export", "last", "-o", file, "--log", log, "--json")
    checkpoint = json.loads(made.stdout)["checkpoint"]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))

    without, held = cli("audit", "verify", file), cli("audit", "verify", file, "--checkpoint", checkpoint)

    assert (without.exit_code, held.exit_code) == (0, 1)
    assert "missing at the end" in held.stdout
    assert cli("audit", "verify", "last", "--log", log, "--checkpoint", checkpoint).exit_code == 0


@pytest.mark.parametrize("text", ["x", "1:", "1:zz", "-1:" + "00" * 32, "1:" + "00" * 31])
def test_what_is_no_checkpoint_is_bad_usage(cli: Run, log: Path, text: str) -> None:
    assert cli("audit", "verify", "last", "--log", log, f"--checkpoint={text}").exit_code == 2


def test_a_file_without_events_does_not_verify(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.ndjson").touch()

    result = cli("audit", "verify", tmp_path / "empty.ndjson")

    assert (result.exit_code, "contains no events" in result.stderr) == (1, True)


def test_a_whole_log_is_verified_run_by_run(cli: Run, log: Path) -> None:
    recorded_log(log, "make", run_id="run_two")

    assert [each["run_id"] for each in json.loads(cli("audit", "verify", log, "--json").stdout)] == [
        "run_one",
        "run_two",
    ]


def test_a_run_is_found_by_the_beginning_of_its_id_or_as_the_last() -> None:
    runs = ["run_abcd1", "run_abcd2", "run_c", "other"]

    assert [match_run(runs, wanted) for wanted in ("run_abcd1", "abcd2", "c", "run_c", "othe", "last")] == [
        "run_abcd1",
        "run_abcd2",
        "run_c",
        "run_c",
        "other",
        "other",
    ]
    with pytest.raises(ConfigurationError, match="abcd may be any of 2 runs: run_abcd2, run_abcd1"):
        match_run(runs, "abcd")
    with pytest.raises(ConfigurationError, match=r"Unknown run `zzzz`\. Known: other, run_c, run_abcd2"):
        match_run(runs, "zzzz")
    with pytest.raises(ConfigurationError, match=r"Unknown run `run_abce1`\. Did you mean `run_abcd1`"):
        match_run(runs, "run_abce1")
    with pytest.raises(ConfigurationError, match="There are no runs yet"):
        match_run([], "last")
    with pytest.raises(ConfigurationError, match="Unknown run ``"):
        match_run(runs, "")


@pytest.mark.parametrize("wanted", ["r", "run", "run_", "run_abc", "abc", "oth"])
def test_a_few_letters_name_no_run_even_where_only_one_begins_so(wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Unknown run `{wanted}`. At least 4 letters of its id name one"):
        match_run(["run_abcd", "other"], wanted)


def test_looking_for_a_log_makes_none(cli: Run, home: Path) -> None:
    result = cli("audit", "verify", "last")

    assert (result.exit_code, "There are no runs yet" in result.stderr) == (2, True)
    assert os.listdir(home) == []


def test_the_log_is_named_by_an_option_or_a_variable(cli: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_LOG", str(log))

    assert cli("audit", "verify", "one").exit_code == 0
    assert cli("audit", "verify", "one", "--log", log.parent / "none.db").exit_code == 2


def test_a_shell_completes_the_names_of_runs(log: Path) -> None:
    asked = {
        "_INTERLOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": "interlock replay run_",
        "COMP_CWORD": "2",
        "INTERLOCK_LOG": str(log),
    }
    program = "from interlock.cli.main import main; main()"

    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )

    assert (ended.stdout, ended.stderr) == ("run_one\n", "")
