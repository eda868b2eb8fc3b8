"""`interlock runs resume`: go on with a run in this process, with the agent that `interlock run` has."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from interlock import Agent, Runner, ScriptedModel
from interlock.cli.config.user_paths import UserPaths
from interlock.cli.session.agent import RunOptions
from interlock.cli.session.resume import ResumableRun, load_resumable, prepare_resumed
from interlock.domain.tool import PermissionMode
from interlock.models.scripted import ScriptedTurn, to_script, tool_call
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS, wait_until
from tests.pipeline.approval.person import at_terminal

from .conftest import Run, newest, write
from .runs_program import mailer, recorded, started
from .scripts import run_name

TASK = "write hello"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A model that writes a file, which is asked about, and is done."""
    write = tool_call("write_file", path="hello.txt", content="hello\n", call_id="call_1")
    turns = [ScriptedTurn(text="I write it.", calls=(write,)), ScriptedTurn(text="It is written.")]
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
    cli("approvals", "approve", newest(cli))
    ended = cli("runs", "resume", "last", "--script", script, "--headless", "--json")

    assert (too_early.exit_code, ended.exit_code) == (3, 0)
    assert json.loads(ended.stdout)["text"] == "It is written."
    assert (project / "hello.txt").read_text() == "hello\n"


def test_it_works_in_the_folder_that_the_run_was_begun_in(
    cli: Run, project: Path, script: Path, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("approvals", "approve", newest(cli))
    monkeypatch.chdir(project.parent)

    ended = cli("runs", "resume", waiting, "--script", script, "--headless")

    assert (ended.exit_code, (project / "hello.txt").exists()) == (0, True)


def test_a_run_that_names_no_folder_goes_on_only_in_one_that_is_named(
    cli: Run, project: Path, script: Path, tmp_path: Path
) -> None:
    recorded(tmp_path, msgspec.structs.replace(mailer(tmp_path), name="interlock"))
    words = ("runs", "resume", "last", "--script", script, "--headless", "--log", tmp_path / "runs.db")

    refused, named = cli(*words), cli(*words, "--workspace", project)

    assert (refused.exit_code, "Name one with --workspace" in refused.stderr) == (2, True)
    assert f"in{project}" in "".join(named.stdout.split()), named.output


def test_a_run_is_not_moved_to_another_folder(cli: Run, script: Path, waiting: str, tmp_path: Path) -> None:
    ended = cli("runs", "resume", waiting, "--script", script, "--headless", "--workspace", tmp_path)

    assert (ended.exit_code, "Nothing was done" in ended.stderr) == (2, True)


def test_an_answer_can_go_on_with_the_run_at_once(cli: Run, project: Path, waiting: str) -> None:
    ended = cli("approvals", "approve", newest(cli), "--resume")

    assert ended.exit_code == 0
    assert "It is written." in ended.stdout
    assert (project / "hello.txt").read_text() == "hello\n"
    assert json.loads(cli("runs", "show", waiting, "--json").stdout)["state"] == "completed"


def test_a_run_gets_no_freer_than_it_was_unless_somebody_says_so(cli: Run, places: UserPaths, script: Path) -> None:
    write(places.policy_file, "version: 1\nask:\n  - list_dir\n")
    script.write_bytes(
        to_script(
            [ScriptedTurn(calls=(tool_call("list_dir", path=".", call_id="call_1"),)), ScriptedTurn(text="Seen.")]
        )
    )
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
    cli: Run, places: UserPaths, script: Path, tmp_path: Path, project: Path
) -> None:
    with at_terminal() as person:
        first = started("run", TASK, "--script", script, stdin=person.keys, stderr=person.output)
        person.waits_for("d details: ")
        refused = cli("runs", "resume", "last", "--script", script, "--headless")
        cli_ended = cli("runs", "resume", "last", "--script", script, "--headless", "--take-over")
        person.types("y")
        first.communicate(timeout=HANG_SECONDS)

    assert (refused.exit_code, cli_ended.exit_code, first.returncode) == (1, 3, 1)
    assert "another process took run" in person.text
    assert "is owned by process" in refused.stderr
    assert "--take-over takes it over from that process." in refused.stderr
    assert not (project / "hello.txt").exists()


def test_a_run_that_goes_on_is_written_as_a_test(cli: Run, script: Path, waiting: str, tmp_path: Path) -> None:
    cli("approvals", "approve", newest(cli))
    cli("runs", "resume", "last", "--script", script, "--headless")
    file = tmp_path / "test_it.py"

    ended = cli("runs", "export-test", "last", "-o", file)

    assert (ended.exit_code, ended.stderr) == (0, "")
    compile(file.read_text(), file, "exec")
    assert cli("runs", "export-test", "last", "-o", file).exit_code == 2


def test_all_that_stopped_and_wait_for_nobody_go_on_one_after_the_other(
    cli: Run, project: Path, script: Path, waiting: str
) -> None:
    cli("approvals", "approve", waiting_question(cli))
    asked = json.loads(cli("run", TASK, "--script", script, "--headless", "--json").stdout)["run_id"]
    cli("chat", "--script", to_file(script, ScriptedTurn(text="Hello.")), input="hi\n")
    stopped = json.loads(cli("run", TASK, "--script", to_file(script), "--headless", "--json").stdout)["run_id"]
    usual = [ScriptedTurn(calls=(tool_call("list_dir", path=".", call_id="call_9"),)), ScriptedTurn(text="Seen.")]

    ended = cli("runs", "resume", "--all", "--script", to_file(script, *usual), "--headless", "--json")

    assert [run["run_id"] for run in json.loads(ended.stdout)] == [waiting, stopped]
    states = {run["run_id"]: run["state"] for run in json.loads(cli("runs", "list", "--json").stdout)}
    assert (states.pop(waiting), states.pop(stopped)) == ("completed", "completed")
    assert states.pop(asked) == "paused_approval"
    assert list(states.values()) == ["idle"]
    assert (ended.exit_code, (project / "hello.txt").read_text()) == (0, "hello\n")


def test_what_cannot_go_on_is_told_and_the_next_one_does(
    cli: Run, project: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = project / "gone"
    gone.mkdir()
    none = to_file(script)
    cli("run", TASK, "--script", none, "--headless", "--workspace", gone)
    cli("run", TASK, "--script", none, "--headless")
    gone.rmdir()

    ended = cli("runs", "resume", "--all", "--script", to_file(script, ScriptedTurn(text="Done.")), "--headless")

    assert ended.exit_code == 1
    assert f"{gone} is not a folder" in ended.stderr
    assert "Done.\n" in ended.stdout
    assert [run["state"] for run in json.loads(cli("runs", "list", "--json").stdout)] == ["completed", "stopped"]


def test_one_run_is_named_or_all(cli: Run, project: Path) -> None:
    assert [cli("runs", "resume").exit_code, cli("runs", "resume", "last", "--all").exit_code] == [2, 2]
    assert cli("runs", "resume", "--all").stdout == "No run stopped.\n"


def test_a_new_run_is_told_of_those_that_stopped_in_its_folder(cli: Run, project: Path, script: Path) -> None:
    stopped = run_name(cli("run", TASK, "--script", to_file(script), "--headless").output)

    here = cli("run", TASK, "--script", to_file(script, ScriptedTurn(text="Done.")), "--headless")
    elsewhere = cli("run", TASK, "--script", script, "--headless", "--workspace", project.parent)

    assert f"1 run stopped in this folder. `interlock runs resume {stopped}` resumes." in " ".join(here.stdout.split())
    assert "stopped in this folder" not in elsewhere.stdout


@pytest.mark.requirement("P06")
def test_after_a_crash_a_person_is_asked_whether_a_command_may_run_again(
    cli: Run, project: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_UNDO", "edits")  # so that it writes while it runs
    hangs = tool_call("bash", command="echo once >> effects; sleep 50", call_id="call_1")
    to_file(script, ScriptedTurn(calls=(hangs,)), ScriptedTurn(text="Done."))
    with started("run", TASK, "--script", script, "--mode", "trusted", stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # The shell creates the file before it writes to it.
        wait_until(lambda: (project / "effects").exists() and (project / "effects").read_text())
        process.kill()

    ended = cli("runs", "resume", "last", "--script", script, "--headless", "--mode", "trusted")

    assert ended.exit_code == 3
    assert "it may have happened" in " ".join(ended.stdout.split())
    assert (project / "effects").read_text() == "once\n"


def to_file(script: Path, *turns: ScriptedTurn) -> Path:
    script.write_bytes(to_script(turns))
    return script


def waiting_question(cli: Run) -> str:
    return json.loads(cli("approvals", "list", "--json").stdout)[-1]["action_id"]


def resumed(run_id: str, **settings: str) -> ResumableRun:
    return ResumableRun(run_id, str(Path.cwd()), PermissionMode.TRUSTED, settings)


def test_a_run_continues_with_the_model_it_was_started_with(
    project: Path, places: UserPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is configured meanwhile; only what the command says is different."""
    write(places.settings_file, 'model = "configured"\nprovider = "openai"\n')
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-mine")
    run = resumed("run_1", provider="anthropic", model="first", base_url="http://127.0.0.1:9", mode="trusted")

    before = prepare_resumed(run, RunOptions(workspace=project))
    model = prepare_resumed(run, RunOptions(workspace=project, settings={"model": "other", "mode": "read_only"}))
    provider = prepare_resumed(run, RunOptions(workspace=project, settings={"provider": "openai"}))

    assert (before.model.label, before.mode) == ("first (http://127.0.0.1:9)", "trusted")
    assert before.notes == (
        "Run run_1 continues as it was started: provider anthropic, model first, base_url http://127.0.0.1:9.",
    )
    assert (model.model.label, model.mode) == ("other (http://127.0.0.1:9)", "read_only")
    assert provider.model.label == "configured (openai)"


def test_a_run_remembers_model_policy_and_mode(cli: Run, project: Path, script: Path, tmp_path: Path) -> None:
    policy = write(tmp_path / "mine.yaml", "version: 1\nask:\n  - write_file\n")
    log = tmp_path / "own.db"
    words = ("--policy", policy, "--mode", "accept_edits", "--log", log, "--headless")
    assert cli("run", TASK, "--script", script, *words).exit_code == 3

    again = cli("runs", "resume", "last", "--headless", "--log", log)
    assert (again.exit_code, "the script script.json, mode accept_edits," in again.stdout) == (3, True), again.output
    assert f"continues as it was started: policy {policy}." in " ".join(again.stderr.split())
    policy.unlink()
    refused = cli("runs", "resume", "last", "--headless", "--log", log)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"was started with the policy {policy}, which is not there any more" in " ".join(refused.stderr.split())


async def test_the_model_that_was_asked_last_is_remembered(tmp_path: Path) -> None:
    agent = Agent(provider=ScriptedModel(["Hello."]), model="second", name="interlock")
    async with SqliteLog(tmp_path / "runs.db") as log, Runner(agent, log=log, secrets={"KEY": "hunter2"}) as runner:
        settings = {"provider": "scripted", "model": "first", "base_url": "http://me:hunter2@host"}
        handle = await runner.start("Say hello.", settings=settings)
        await handle.result()

        run = await load_resumable(log, handle.run_id)

    assert run.settings == {"provider": "scripted", "model": "second"}
