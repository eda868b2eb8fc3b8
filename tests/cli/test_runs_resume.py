"""`interlock runs resume`: go on with a run in this process, with the agent that `interlock run` has."""

import json
from pathlib import Path

import msgspec
import pytest

from interlock.cli import runs_resume
from interlock.cli.agent import Prepared, Wanted, prepare
from interlock.cli.places import Places
from interlock.models.script import to_script
from interlock.models.scripted import Turn, proposed
from tests.approvals.person import at_terminal

from .conftest import Run, write
from .runs_program import recorded, started

TASK = "write hello"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A model that writes a file, which is asked about, and is done."""
    write = proposed("write_file", {"path": "hello.txt", "content": "hello\n"}, "call_1")
    turns = [Turn(text="I write it.", calls=(write,)), Turn(text="It is written.")]
    file = tmp_path / "script.json"
    file.write_bytes(to_script(turns))
    return file


@pytest.fixture
def waiting(cli: Run, home: Path, script: Path) -> str:
    """The id of a run that waits for an approval."""
    return json.loads(cli("run", TASK, "--script", script, "--headless", "--json").stdout)["run_id"]


@pytest.mark.requirement("R131", "R137")
def test_an_approved_run_goes_on_where_it_stopped(cli: Run, project: Path, script: Path, waiting: str) -> None:
    too_early = cli("runs", "resume", waiting, "--script", script, "--headless", "--json")
    cli("approvals", "approve", "last")
    ended = cli("runs", "resume", "last", "--script", script, "--headless", "--json")

    assert (too_early.exit_code, ended.exit_code) == (3, 0)
    assert json.loads(ended.stdout)["text"] == "It is written."
    assert (project / "hello.txt").read_text() == "hello\n"


def test_it_works_in_the_folder_that_the_run_was_begun_in(
    cli: Run, project: Path, script: Path, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("approvals", "approve", "last")
    monkeypatch.chdir(project.parent)

    ended = cli("runs", "resume", waiting, "--script", script, "--headless")

    assert (ended.exit_code, (project / "hello.txt").exists()) == (0, True)


def test_an_answer_can_go_on_with_the_run_at_once(
    cli: Run, project: Path, script: Path, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_script(wanted: Wanted) -> Prepared:
        return prepare(msgspec.structs.replace(wanted, script=script))

    monkeypatch.setattr(runs_resume, "prepare", with_script)

    ended = cli("approvals", "approve", "last", "--resume")

    assert ended.exit_code == 0
    assert "It is written." in ended.stdout
    assert (project / "hello.txt").read_text() == "hello\n"
    assert json.loads(cli("runs", "show", waiting, "--json").stdout)["state"] == "completed"


def test_a_run_gets_no_freer_than_it_was_unless_somebody_says_so(cli: Run, places: Places, script: Path) -> None:
    write(places.policy_file, "version: 1\nask:\n  - list_dir\n")
    script.write_bytes(to_script([Turn(calls=(proposed("list_dir", {"path": "."}, "call_1"),)), Turn(text="Seen.")]))
    began = cli("run", TASK, "--script", script, "--headless", "--mode", "read_only")

    as_before = cli("runs", "resume", "last", "--script", script, "--headless")
    freer = cli("runs", "resume", "last", "--script", script, "--headless", "--mode", "accept_edits")

    assert (began.exit_code, as_before.exit_code, freer.exit_code) == (3, 3, 3)
    assert "mode read_only" in as_before.stdout
    assert "mode accept_edits" in freer.stdout


def test_a_run_that_is_over_cannot_be_resumed(cli: Run, waiting: str, script: Path) -> None:
    cli("runs", "cancel", waiting)

    ended = cli("runs", "resume", waiting, "--script", script)

    assert ended.exit_code == 1
    assert f"{waiting[4:12]} is cancelled: it cannot go on. `interlock runs fork {waiting[4:12]}`" in ended.stderr


def test_a_run_of_another_program_is_resumed_there(cli: Run, tmp_path: Path, home: Path, script: Path) -> None:
    recorded(tmp_path)

    ended = cli("runs", "resume", "last", "--script", script, "--log", tmp_path / "runs.db")

    assert ended.exit_code == 2
    assert "is a run of the agent 'mailer', which belongs to another program" in ended.stderr


def test_a_run_that_a_living_process_has_is_taken_only_by_force(
    cli: Run, places: Places, script: Path, tmp_path: Path, project: Path
) -> None:
    with at_terminal() as person:
        first = started("run", TASK, "--script", script, stdin=person.keys, stderr=person.output)
        person.waits_for("Approve? [y/N] ")
        refused = cli("runs", "resume", "last", "--script", script, "--headless")
        cli_ended = cli("runs", "resume", "last", "--script", script, "--headless", "--take-over")
        first.kill()
        first.communicate(timeout=50)

    assert (refused.exit_code, cli_ended.exit_code) == (1, 3)
    assert "is moved on by process" in refused.stderr
    assert "--take-over takes it away from that process." in refused.stderr
    assert not (project / "hello.txt").exists()


def test_a_run_that_goes_on_is_written_as_a_test(cli: Run, script: Path, waiting: str, tmp_path: Path) -> None:
    cli("approvals", "approve", "last")
    cli("runs", "resume", "last", "--script", script, "--headless")
    file = tmp_path / "test_it.py"

    ended = cli("runs", "export-test", "last", "-o", file)

    assert (ended.exit_code, ended.stderr) == (0, "")
    compile(file.read_text(), file, "exec")
    assert cli("runs", "export-test", "last", "-o", file).exit_code == 2
