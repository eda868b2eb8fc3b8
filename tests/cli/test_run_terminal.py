"""`interlock run` on a real terminal: questions, answers from elsewhere, Ctrl-C, and a terminal left as it was."""

import os
import signal
import socket
import termios
from pathlib import Path

import pytest

from interlock.cli.exit_codes import ExitCode
from interlock.sandbox.commands.probe import choose_sandbox

from .conftest import Run, newest
from .scripts import CTRL_C, calls, command, on_terminal, write_script

WRITE = calls(("write_file", {"path": "note.txt", "content": "hello\n"}), text="I write it.")
PROMPT = "d details: "


@pytest.fixture
def script(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "script.json"


def test_a_question_comes_after_what_happened_before_it_and_a_yes_is_gone_on_with(script: Path, project: Path) -> None:
    write_script(script, WRITE, "Written.")

    with on_terminal("run", "Write it.", "--script", script) as here:
        before = here.sees(PROMPT)
        here.types("y")
        after = here.sees("look at the run")
        assert here.ends() == ExitCode.OK

    assert before.index("I write it.") < before.index("asked: ")
    assert "Approved by" not in after
    assert "write_file note.txt" in after
    assert (project / "note.txt").exists()


@pytest.mark.skipif(choose_sandbox().confinement.degraded, reason="commands are not contained here")
def test_first_start_recommends_contained(script: Path, project: Path) -> None:
    write_script(script, command("touch made && echo made it"), "Made.")
    words = "Recommended: --mode contained"

    with on_terminal("run", "Write it.", "--script", script) as first:
        before = first.sees(PROMPT)
    with on_terminal("run", "Write it.", "--script", script, "--mode", "contained") as second:
        after = second.sees("look at the run")
        assert second.ends() == ExitCode.OK

    assert words in " ".join(before.split())
    assert words not in " ".join(after.split())
    assert PROMPT not in after
    assert (project / "made").exists()


def test_an_answer_from_elsewhere_withdraws_the_question_and_is_told(cli: Run, script: Path, project: Path) -> None:
    write_script(script, WRITE, "Written.")

    with on_terminal("run", "Write it.", "--script", script) as here:
        here.sees(PROMPT)
        assert cli("approvals", "approve", newest(cli), "--by", "ana").exit_code == ExitCode.OK
        after = here.sees("look at the run")
        assert here.ends() == ExitCode.OK

    assert "It is not asked here any more." in after
    assert "Approved by ana, on the command line, proved: write_file note.txt" in after


@pytest.mark.requirement("R225", "R228")
def test_ctrl_c_cancels_the_command_and_the_run_goes_on_and_stray_keys_are_not_shown(
    script: Path, project: Path
) -> None:
    write_script(script, command("echo begun; sleep 50"), "It was cancelled.")

    with on_terminal("run", "Try.", "--script", script, "--mode", "trusted") as here:
        here.sees("sleep 50")
        here.types("stray\n")
        here.sees("    | begun")
        here.types(CTRL_C)
        after = here.sees("look at the run")
        assert here.ends() == ExitCode.OK

    assert "Ctrl-C: 1 call cancelled, and the run continues." in after
    assert "  cancelled" in after
    assert "It was cancelled." in after
    assert "stray" not in here.person.text


def test_a_second_ctrl_c_stops_the_run_which_is_kept_and_the_terminal_is_as_it_was(
    cli: Run, script: Path, project: Path
) -> None:
    write_script(script, command("sleep 51"), command("sleep 52"), "Done.")

    with on_terminal("run", "Try.", "--script", script, "--mode", "trusted") as here:
        modes = termios.tcgetattr(here.person.keys)
        here.sees("sleep 51")
        here.types(CTRL_C)
        here.sees("sleep 52")
        here.types(CTRL_C)
        after = here.sees("resume the run")
        assert here.ends() == ExitCode.INTERRUPTED
        assert termios.tcgetattr(here.person.keys) == modes

    assert "Stopping the run here. The run is kept." in after
    assert "Traceback" not in here.person.text
    resumed = cli("runs", "resume", "last", "--script", script, "--mode", "trusted")
    assert (resumed.exit_code, "Done." in resumed.output) == (ExitCode.OK, True), resumed.output


def test_ctrl_c_at_a_question_leaves_it_open(cli: Run, script: Path, project: Path) -> None:
    write_script(script, WRITE, "Written.")

    with on_terminal("run", "Write it.", "--script", script) as here:
        modes = termios.tcgetattr(here.person.keys)
        here.sees(PROMPT)
        here.types(CTRL_C)
        after = here.sees("resume the run")
        assert here.ends() == ExitCode.INTERRUPTED
        assert termios.tcgetattr(here.person.keys) == modes

    assert "The question stays open. The run is kept." in after
    assert cli("approvals", "approve", newest(cli)).exit_code == ExitCode.OK
    assert cli("runs", "resume", "last", "--script", script).exit_code == ExitCode.OK
    assert (project / "note.txt").exists()


def test_ctrl_c_while_a_model_is_waited_for_stops_the_run(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ("--base-url", f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "--model", "m")
        with on_terminal("run", "Say hello.", *words) as here:
            here.sees("waiting for the model")
            here.types(CTRL_C)
            here.sees("The model is not listened to any more. The run is kept.")
            assert here.ends() == ExitCode.INTERRUPTED

    assert "Traceback" not in here.person.text


def test_a_process_that_is_told_to_end_keeps_the_run(script: Path, project: Path) -> None:
    write_script(script, command("sleep 53"), "Done.")

    with on_terminal("run", "Try.", "--script", script, "--mode", "trusted") as here:
        here.sees("sleep 53")
        os.kill(here.process.pid, signal.SIGTERM)
        here.sees("This process received SIGTERM. The run is kept.")
        here.sees("resume the run")
        assert here.ends() == ExitCode.INTERRUPTED


def test_a_run_under_nohup_outlives_the_terminal(script: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(script, command("echo begun; read -r < go; echo went on"), "Done.")
    os.mkfifo(project / "go")
    monkeypatch.setenv("INTERLOCK_UNDO", "edits")  # so that its pipe is the one outside

    with on_terminal("run", "Try.", "--script", script, "--mode", "trusted", ignores=[signal.SIGHUP]) as here:
        here.sees("    | begun")
        os.kill(here.process.pid, signal.SIGHUP)
        (project / "go").write_text("go\n")
        after = here.sees("look at the run")
        assert here.ends() == ExitCode.OK

    assert "went on" in after
    assert "The terminal is gone." not in after
