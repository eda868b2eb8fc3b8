"""`interlock run` without a terminal: what it does, what it says, and how it ends."""

import json
import re
from pathlib import Path

import pytest

from interlock.cli.config.model_keys import KEY_VARIABLE, PROVIDER_VARIABLES
from interlock.cli.exit_codes import ExitCode

from .conftest import Run, newest, write
from .scripts import calls, command, run_name, write_script

WRITE = calls(("write_file", {"path": "note.txt", "content": "hello\n"}))


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """A user of their own, in a project of their own."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.json"


def state_folder(home: Path) -> Path:
    return home / ".local" / "state" / "interlock"


def test_a_run_works_on_its_task_and_says_what_it_did(cli: Run, script: Path, project: Path) -> None:
    (project / "a.txt").write_text("tea\n")
    write_script(script, calls(("read_file", {"path": "a.txt"}), text="I read it."), "It says tea.")

    ended = cli("run", "What is in a.txt?", "--script", script)

    assert ended.exit_code == ExitCode.OK, ended.output
    headline, said = ended.output.split("| I read it.\n")
    what, _, folder = headline.partition(" in")
    assert what.endswith(": the script script.json, mode default,")
    # It may be longer than a line.
    assert "".join(folder.split()) == str(project)
    assert re.match(r"  ok +\d+ ms   read_file a\.txt\n\| It says tea\.\n", said)
    assert "unverified  No test or check was run." in ended.output
    assert "interlock runs show " in ended.output


def test_files_are_attached_to_the_task(cli: Run, script: Path, project: Path) -> None:
    (project / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    write_script(script, "I see it.")

    missing = cli("run", "Look.", "--attach", "nothing.png", "--script", script)
    ended = cli("run", "Look.", "--attach", project / "shot.png", "--script", script)
    events = cli("runs", "events", "last")

    assert missing.exit_code == ExitCode.USAGE, missing.output
    assert "nothing.png cannot be attached" in missing.output
    assert ended.exit_code == ExitCode.OK, ended.output
    assert "[1 attachment]" in events.output


def test_without_a_terminal_a_question_pauses_the_run_and_the_way_on_is_told(
    cli: Run, script: Path, project: Path
) -> None:
    write_script(script, WRITE, "Written.")

    ended = cli("run", "Write a note.", "--script", script)

    assert ended.exit_code == ExitCode.WAITING, ended.output
    assert "waits       write_file: note.txt (No rule matches, and its risk is write)" in ended.output
    assert "interlock approvals approve " in ended.output
    assert "interlock runs resume " in ended.output
    assert not (project / "note.txt").exists()


def test_a_run_that_was_paused_goes_on_after_an_answer(cli: Run, script: Path, project: Path) -> None:
    write_script(script, WRITE, "Written.")
    cli("run", "Write a note.", "--script", script)

    answered = cli("approvals", "approve", newest(cli))
    resumed = cli("runs", "resume", "last", "--script", script)

    assert (answered.exit_code, resumed.exit_code) == (ExitCode.OK, ExitCode.OK), answered.output + resumed.output
    assert "write_file note.txt" in resumed.output
    assert (project / "note.txt").read_text() == "hello\n"


def test_modes_and_policy_files_decide_what_is_asked(cli: Run, script: Path, project: Path, tmp_path: Path) -> None:
    write_script(script, WRITE, "Done.")
    policy = write(tmp_path / "mine.yaml", "version: 1\ndeny:\n  - write_file\n")

    denied = cli("run", "Write.", "--script", script, "--policy", policy)
    edited = cli("run", "Write.", "--script", script, "--mode", "accept_edits")
    hidden = cli("run", "Write.", "--script", script, "--mode", "read_only")

    assert [each.exit_code for each in (denied, edited, hidden)] == [ExitCode.REFUSED, 0, 0]
    assert "  denied             write_file note.txt" in denied.output
    assert (project / "note.txt").read_text() == "hello\n"
    assert "not available in read-only mode" in " ".join(hidden.output.split())


def test_for_programs_there_is_one_document(cli: Run, script: Path) -> None:
    write_script(script, calls(("list_dir", {})), "Nothing there.")

    told = json.loads(cli("run", "Look.", "--script", script, "--json").stdout)

    assert told["run_id"].startswith("run_")
    assert (told["status"], told["text"], told["exit_code"]) == ("COMPLETED", "Nothing there.", 0)
    assert told["verification"]["status"] == "none"
    assert [(call["tool"], call["ok"]) for call in told["calls"]] == [("list_dir", True)]


def test_a_question_is_in_the_document_for_programs(cli: Run, script: Path) -> None:
    write_script(script, WRITE, "Written.")

    told = json.loads(cli("run", "Write.", "--script", script, "--json").stdout)

    assert (told["status"], told["exit_code"]) == ("PAUSED_APPROVAL", ExitCode.WAITING)
    assert [(asked["tool"], asked["capability"]) for asked in told["questions"]] == [
        ("write_file", "write_file note.txt")
    ]


@pytest.mark.requirement("R268")
def test_an_answer_that_contradicts_the_facts_is_told_and_is_no_success(cli: Run, script: Path) -> None:
    write_script(script, "All tests pass.", "Yes, all tests pass.")

    ended = cli("run", "Test it.", "--script", script)

    assert ended.exit_code == ExitCode.FAILED
    assert "The answer contradicts the facts" in ended.output


def test_tests_that_passed_after_the_last_change_are_what_verifies(cli: Run, script: Path, project: Path) -> None:
    (project / "test_a.py").write_text("import unittest\n\nclass A(unittest.TestCase):\n    def test_a(self): pass\n")
    write_script(script, command("python3 -m unittest -q"), "The tests pass.")

    ended = cli("run", "Test it.", "--script", script, "--mode", "trusted")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert "verified    `python3 -m unittest -q` (exit code 0, 1 passed) passed" in ended.output


def test_a_budget_ends_the_run_in_words(cli: Run, script: Path) -> None:
    write_script(script, *[calls(("list_dir", {}))] * 3, "Done.")

    ended = cli("run", "Look.", "--script", script, "--max-steps", 2)

    assert ended.exit_code == ExitCode.FAILED
    assert "failed      The run has used its budget of 2 steps." in ended.output


def test_a_model_that_fails_leaves_a_run_that_can_be_resumed(cli: Run, script: Path) -> None:
    write_script(script, calls(("list_dir", {})))

    ended = cli("run", "Look.", "--script", script)

    assert ended.exit_code == ExitCode.FAILED
    assert "The model gave no answer: The script has 1 turns" in ended.output
    assert "The run is kept. To resume it:" in ended.output
    assert f"interlock runs resume {run_name(ended.output)}\n" in ended.output


@pytest.mark.parametrize("words", [(), ("--provider", "anthropic")])
def test_without_a_key_it_says_what_to_set_and_writes_nothing(cli: Run, home: Path, words: tuple[str, ...]) -> None:
    ended = cli("run", "Do it.", *words)

    assert ended.exit_code == ExitCode.USAGE
    assert f"set {PROVIDER_VARIABLES[words[1] if words else 'openai']} (or {KEY_VARIABLE})" in ended.output
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--base-url", "http://127.0.0.1:9/v1"), "No model is named."),
        (("--base-url", "nowhere", "--model", "m"), "must be an http or https address"),
        (("--workspace", "missing"), "is not a folder"),
        (("--script", "missing.json"), "cannot be read: No such file"),
        (("--policy", "missing.yaml", "--script", "s.json"), "missing.yaml does not exist"),
        (("--max-steps", "0"), "0 is not in the range"),
        (("--log", "a.txt", "--script", "s.json"), "a.txt cannot be read"),
    ],
)
def test_whatever_is_not_in_order_is_told_before_anything_is_written(
    cli: Run, home: Path, project: Path, words: tuple[str, ...], said: str
) -> None:
    write_script(project / "s.json", "Hello.")
    (project / "a.txt").write_text("no log")

    ended = cli("run", "Do it.", *words)

    assert (ended.exit_code, said in " ".join(ended.output.split())) == (ExitCode.USAGE, True), ended.output
    assert list(home.iterdir()) == []


def test_an_empty_task_is_none(cli: Run) -> None:
    assert cli("run", "  ").exit_code == ExitCode.USAGE


def test_a_task_is_read_from_input_and_files(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.")
    (project / "task.md").write_text("Say hello,\nin two lines.\n")
    (project / "image.png").write_bytes(b"\x89PNG\xff")

    piped = cli("run", "-", "--script", script, input="Say hello, piped.\n")
    read = cli("run", "@task.md", "--script", script)
    refused = [cli("run", name, "--script", script) for name in ("@missing.md", "@image.png", "@.")]
    empty = cli("run", "-", "--script", script, input="")

    assert [each.exit_code for each in (piped, read)] == [ExitCode.OK, ExitCode.OK], piped.output + read.output
    tasks = [run["task"] for run in json.loads(cli("runs", "list", "--json").stdout)]
    assert tasks == ["Say hello,\nin two lines.\n", "Say hello, piped.\n"]
    assert [each.exit_code for each in (*refused, empty)] == [ExitCode.USAGE] * 4
    assert "cannot be read from missing.md: No such file" in " ".join(refused[0].output.split())


def test_a_refused_last_call_has_its_exit_code(cli: Run, script: Path, tmp_path: Path) -> None:
    policy = write(tmp_path / "mine.yaml", "version: 1\ndeny:\n  - write_file\n")
    write_script(script, WRITE, calls(("list_dir", {})), "I could not write, so I listed.")
    went_on = cli("run", "Write.", "--script", script, "--policy", policy)
    write_script(script, WRITE, "I may not write.")
    gave_up = cli("run", "Write.", "--script", script, "--policy", policy, "--json")

    assert (went_on.exit_code, gave_up.exit_code) == (ExitCode.OK, ExitCode.REFUSED)
    assert json.loads(gave_up.stdout)["exit_code"] == ExitCode.REFUSED


def test_a_key_for_another_provider_is_pointed_out_and_not_shown(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")

    ended = cli("run", "Do it.", "--provider", "anthropic")

    assert "There is one for openai: choose it with --provider openai." in ended.output
    assert "not-to-be-seen" not in ended.output


def test_a_project_that_nobody_trusted_brings_nothing(cli: Run, script: Path, project: Path) -> None:
    write(project / ".interlock" / "policy.yaml", "version: 1\ndeny:\n  - list_dir\n")
    write(project / ".interlock" / "skills" / "x" / "SKILL.md", "---\nname: x\ndescription: d\n---\nobey\n")
    write_script(script, calls(("list_dir", {}), ("skill_x", {})), "Done.")

    ended = cli("run", "Look.", "--script", script)

    assert "were ignored: this project is not trusted yet" in ended.output
    assert "list_dir" in ended.output
    assert "denied" not in ended.output
    assert "skill_x" in ended.output
    assert "no tool" in ended.output.lower()


def test_a_trusted_project_brings_its_policy_and_skills_and_the_user_theirs(
    cli: Run, script: Path, project: Path, home: Path
) -> None:
    write(project / ".interlock" / "policy.yaml", "version: 1\ndeny:\n  - list_dir\n")
    write(project / ".interlock" / "skills" / "x" / "SKILL.md", "---\nname: x\ndescription: d\n---\nobey\n")
    write(home / ".config" / "interlock" / "skills" / "y" / "SKILL.md", "---\nname: y\ndescription: d\n---\nobey\n")
    write_script(script, calls(("list_dir", {}), ("skill_x", {}), ("skill_y", {})), "Done.")
    assert cli("trust", "--yes").exit_code == ExitCode.OK

    ended = cli("run", "Look.", "--script", script)

    words = [line.split()[0] for line in ended.output.splitlines() if line.startswith("  ")]
    assert (words.count("ok"), words.count("denied")) == (2, 1), ended.output


def test_a_log_of_ones_own_is_named_in_what_to_type_next(cli: Run, script: Path, home: Path, tmp_path: Path) -> None:
    write_script(script, WRITE, "Written.")

    ended = cli("run", "Write.", "--script", script, "--log", tmp_path / "own.db")

    assert f"--log {tmp_path}/own.db" in ended.output
    assert (tmp_path / "own.db.artifacts").is_dir()
    assert not state_folder(home).exists()


def test_what_is_kept_is_for_its_owner_alone(cli: Run, script: Path, home: Path) -> None:
    write_script(script, "Hello.")

    cli("run", "Say hello.", "--script", script)

    assert state_folder(home).stat().st_mode & 0o077 == 0
    assert {path.name for path in state_folder(home).iterdir()} >= {"runs.db", "artifacts"}
