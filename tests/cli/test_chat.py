"""`interlock chat`: a conversation is one run, which is kept."""

import json
import termios
from pathlib import Path

import pytest

from interlock.cli.exit_codes import ExitCode
from interlock.cli.session.chat import CHAT_COMMANDS
from interlock.domain.messages import Usage
from interlock.models.scripted import ScriptedTurn

from .conftest import Run, newest
from .scripts import CTRL_C, CTRL_D, calls, command, on_terminal, write_script

SHIFT_TAB, ALT_ENTER, CTRL_O = "\x1b[Z", "\x1b\r", "\x0f"
WRITE = calls(("write_file", {"path": "note.txt", "content": "hello\n"}))


@pytest.fixture
def script(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "script.json"


def test_what_is_said_next_goes_on_in_the_same_run(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.", calls(("list_dir", {})), "Nothing is here.")

    ended = cli("chat", "--script", script, input="hi\nwhat is here?\n/quit\n")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert ended.output.index("Hello.") < ended.output.index("list_dir") < ended.output.index("Nothing is here.")
    assert cli("runs", "list", "--json").output.count('"run_id"') == 1


def test_a_chat_is_gone_on_with_where_it_was_left(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.", "Still here.")
    cli("chat", "--script", script, input="hi\n")

    ended = cli("chat", "--script", script, "--resume", "last", input="and now?\n")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert [word for word in ("you\n| hi", "agent\n| Hello.", "| Still here.") if word not in ended.output] == []


def test_a_chat_is_not_gone_on_with_in_another_folder(cli: Run, script: Path, project: Path, tmp_path: Path) -> None:
    write_script(script, "Hello.", "Still here.")
    cli("chat", "--script", script, input="hi\n")

    ended = cli("chat", "--script", script, "--resume", "last", "--workspace", tmp_path, input="and now?\n")

    assert (ended.exit_code, f"works in {project}" in ended.output) == (ExitCode.USAGE, True)


def test_a_run_that_is_over_cannot_be_talked_to(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.")
    cli("run", "Say hello.", "--script", script)

    ended = cli("chat", "--script", script, "--resume", "last")

    assert (ended.exit_code, "is completed. Start a new one" in ended.output) == (ExitCode.USAGE, True)


def test_lines_that_end_with_a_backslash_are_one_text(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Understood.")

    cli("chat", "--script", script, input="one\\\ntwo\n")

    assert "one\\ntwo" in cli("runs", "events", "last", "--json").output


def test_the_commands_are_listed_and_unknown_ones_are_told(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.")

    ended = cli("chat", "--script", script, input="/help\n/mod\n/mode\n/mode x\n/resume\n/runs\n/quit\n")

    assert all(f"  {name} " in ended.output for name in CHAT_COMMANDS)
    assert "Unknown command `/mod`. Did you mean `/mode`?" in ended.output
    modes = "The mode is default. Known: read_only, default, accept_edits, contained, trusted."
    assert modes in " ".join(ended.output.split())
    assert "Unknown mode `x`. Known: read_only" in ended.output
    assert "There is no run yet: say what to do." in ended.output


def test_another_mode_holds_from_the_next_thing_on(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.", WRITE, "Written.")

    ended = cli("chat", "--script", script, input="hi\n/mode accept_edits\nwrite it\n/runs\n")

    assert "The mode is accept_edits from now on." in ended.output
    assert (project / "note.txt").exists(), ended.output
    assert "  idle       hi" in ended.output


def test_an_open_question_is_answered_first_from_anywhere(cli: Run, script: Path, project: Path) -> None:
    write_script(script, WRITE, "Written.")

    asked = cli("chat", "--script", script, input="write it\nand more\n")
    cli("approvals", "approve", newest(cli))
    resumed = cli("chat", "--script", script, "--resume", "last", input="/resume\n")

    assert "interlock approvals approve " in asked.output
    assert "A question is open, and has to be answered first: /resume asks it again." in asked.output
    assert "Written." in resumed.output
    assert (project / "note.txt").read_text() == "hello\n"


def test_a_model_that_gives_no_answer_can_be_asked_again(cli: Run, script: Path, project: Path) -> None:
    write_script(script, "Hello.")
    first = cli("chat", "--script", script, input="hi\nmore\n")
    write_script(script, "Hello.", "Here is more.")

    second = cli("chat", "--script", script, "--resume", "last", input="/resume\n")

    assert "/resume asks the model again." in first.output
    assert "Here is more." in second.output


def test_on_a_terminal_ctrl_c_interrupts_the_agent_and_ctrl_d_ends_the_chat(
    cli: Run, home: Path, script: Path, project: Path
) -> None:
    write_script(script, command("sleep 54"), "I stopped.", "Bye.")

    with on_terminal("chat", "--script", script, "--mode", "trusted") as here:
        modes = termios.tcgetattr(here.person.keys)
        here.sees("Shift-Tab")
        here.types("try it\n")
        here.sees("54")
        here.types(CTRL_C)
        here.sees("I stopped.")
        here.sees("Shift-Tab")
        here.types(CTRL_C)
        here.sees("(Ctrl-C again, Ctrl-D or /quit ends the chat)")
        here.sees("Shift-Tab")
        here.types(f"{SHIFT_TAB}bye{ALT_ENTER}now\n")
        here.sees("The mode is read_only from now on.")
        here.sees("Bye.")
        here.sees("Shift-Tab")
        here.types(CTRL_D)
        here.sees("resumes it.")
        assert here.ends() == ExitCode.OK
        assert termios.tcgetattr(here.person.keys) == modes

    assert "Traceback" not in here.person.text
    assert "bye\\nnow" in cli("runs", "events", "last", "--json").output
    assert (home / ".local" / "state" / "interlock" / "chat_history").stat().st_mode & 0o077 == 0


def test_a_key_shows_all_of_the_last_output(home: Path, script: Path, project: Path) -> None:
    write_script(script, command("seq 101 130"), command("sleep 54"), "I stopped.")

    with on_terminal("chat", "--script", script, "--mode", "trusted") as here:
        here.sees("Shift-Tab")
        here.types("count\n")
        here.sees("54")
        here.types(CTRL_O)
        here.sees("    | 101")
        here.types(CTRL_C)
        here.sees("I stopped.")
        here.sees("Shift-Tab")
        here.types(CTRL_D)
        assert here.ends() == ExitCode.OK


def test_slash_commands_show_model_cost_diff_and_tools(cli: Run, script: Path, project: Path) -> None:
    (project / "a.txt").write_text("tea\n")
    read, edit = (
        ("read_file", {"path": "a.txt"}),
        ("edit_file", {"path": "a.txt", "old_string": "tea", "new_string": "rum"}),
    )
    write_script(script, calls(read), calls(edit), "Changed.")

    ended = cli(
        "chat", "--script", script, "--mode", "trusted", input="/diff\nchange it\n/diff\n/cost\n/tools\n/model\n"
    )

    assert ended.exit_code == ExitCode.OK, ended.output
    before, _, after = ended.output.partition("Changed.")
    assert "No edits yet." in before
    assert [line for line in ("  --- a/a.txt", "  -tea", "  +rum") if f"{line}\n" not in after] == []
    assert "no tokens were counted" in after
    assert "  read_file " in after
    assert "The model is the script script.json." in after


@pytest.mark.requirement("P28")
def test_undo_puts_back_the_newest_turn_or_everything(script: Path, project: Path) -> None:
    (project / "a.txt").write_text("tea\n")
    first, second = (("bash", {"command": f"echo {word} >> a.txt"}) for word in ("rum", "gin"))
    write_script(script, calls(first), "One.", calls(second), "Two.")

    with on_terminal("chat", "--script", script, "--mode", "trusted") as here:
        for message, said in (("one", "One."), ("two", "Two.")):
            here.sees("Shift-Tab")
            here.types(f"{message}\n")
            here.sees(said)
        for scope, left in (("", "tea\nrum\n"), (" all", "tea\n")):
            here.sees("Shift-Tab")
            here.types(f"/undo{scope}\n")
            here.sees("d details: ")
            here.types("y")
            here.sees("Done. To undo this: interlock runs undo ")
            assert (project / "a.txt").read_text() == left
        here.sees("Shift-Tab")
        here.types("/quit\n")
        assert here.ends() == ExitCode.OK


def test_another_model_is_asked_from_then_on(
    cli: Run, script: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    write_script(script, "Hello.")

    ended = cli("chat", "--script", script, input="hi\n/model gpt-x\n/model\n")

    assert ended.output.count("The model is gpt-x (openai).") == 2
    assert "not-to-be-seen" not in ended.output


def test_compact_summarizes_all_but_the_newest_turn(cli: Run, script: Path, project: Path) -> None:
    """A script answers by what the request has: the one for a summary has no answer in it yet."""
    write_script(script, ScriptedTurn(text="Hello.", usage=Usage(input_tokens=90)), "Tea.")

    ended = cli("chat", "--script", script, input="/compact\nhi\n/compact\nwhat?\n/compact\n/cost\nand?\n")

    assert ended.exit_code == ExitCode.OK, ended.output
    said = ["There is no run yet", "nothing to summarize yet", "Conversation summarized", "180 tokens in", "| Tea."]
    places = [ended.output.rindex(text) for text in said]
    assert places == sorted(places), ended.output
    facts = [json.loads(line)["fact"] for line in cli("runs", "events", "last", "--json").output.splitlines()]
    [compacted] = [fact for fact in facts if fact["type"] == "context.compacted"]
    assert (compacted["summary"], compacted["usage"]["input_tokens"]) == ("Hello.", 90)
    replayed = cli("replay", "last", "--mode", "model")
    assert replayed.exit_code == ExitCode.OK, replayed.output
