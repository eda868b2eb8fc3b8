"""`interlock replay` in the modes that go through today's code: what comes out differently is shown, nothing is run."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from interlock.models.scripted import ScriptedTurn, to_script, tool_call

from .conftest import Run, recorded_log

TURNS = (
    ScriptedTurn(
        calls=(tool_call("read_file", path="sum.py", call_id="c1"), tool_call("list_dir", path=".", call_id="c2"))
    ),
    ScriptedTurn(calls=(tool_call("write_file", path="new.txt", content="\x1b[2J new", call_id="c3"),)),
    ScriptedTurn(text="Done."),
)
POLICY = "version: 1\nrules:\n  - id: no-files\n    decision: deny\n    tools: write_file\n    reason: No files.\n"


@pytest.fixture
def ran(cli: Run, home: Path, project: Path) -> Result:
    (project / "sum.py").write_text("a - b\n")
    (home / "script.json").write_bytes(to_script(TURNS))
    return cli("run", "Look.", "--script", home / "script.json", "--mode", "accept_edits", "--headless")


def deny_files(home: Path) -> None:
    (home / ".config" / "interlock").mkdir(parents=True)
    (home / ".config" / "interlock" / "policy.yaml").write_text(POLICY)


@pytest.mark.requirement("R269")
def test_a_run_that_comes_out_the_same_says_so_and_leaves_everything_as_it_is(
    cli: Run, ran: Result, project: Path
) -> None:
    (project / "new.txt").write_text("mine")

    result = cli("replay", "last", "--mode", "model")
    found = json.loads(cli("replay", "last", "--mode", "model", "--json").stdout)

    assert ran.exit_code == 0, ran.output
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("3 answers and 3 calls of run_")
    assert result.stdout.endswith("come out as they were recorded. Nothing was executed.\n")
    assert (found["same"], found["differences"], found["unchecked"]) == (True, [], {})
    assert (project / "new.txt").read_text() == "mine"


def test_a_policy_that_says_something_else_now_is_shown_with_its_event(cli: Run, ran: Result, home: Path) -> None:
    deny_files(home)

    result = cli("replay", "last", "--mode", "model")
    found = json.loads(cli("replay", "last", "--mode", "model", "--json").stdout)

    assert result.exit_code == 1
    assert "decision of c3\n  was allow (mode:accept_edits)\n  now deny (no-files)\n" in result.stdout
    assert [each["kind"] for each in found["differences"]] == ["decision", "observation"]
    assert "\x1b" not in result.stdout


@pytest.mark.requirement("R270")
def test_a_dry_run_is_a_table_of_then_and_now(cli: Run, ran: Result, home: Path) -> None:
    before = cli("replay", "last", "--mode", "dry-run")
    deny_files(home)
    after = cli("replay", "last", "--mode", "dry-run")
    found = json.loads(cli("replay", "last", "--mode", "dry-run", "--json").stdout)

    assert (before.exit_code, after.exit_code) == (0, 1)
    assert before.stdout.splitlines()[-1] == "0 calls of 3 would be decided differently. Nothing was executed."
    assert after.stdout.splitlines()[0].split() == ["EVENT", "CALL", "TOOL", "THEN", "SAID", "NOW", "WHY"]
    assert after.stdout.splitlines()[3].split()[1:] == ["c3", "write_file", "allow", "deny", "No", "files."]
    assert [(row["call_id"], row["changed"], row["looser"]) for row in found["calls"]] == [
        ("c1", False, False),
        ("c2", False, False),
        ("c3", True, False),
    ]


def test_a_run_of_somebody_elses_agent_needs_it_to_be_judged(cli: Run, home: Path) -> None:
    log = recorded_log(home / "runs.db", "npm test", run_id="run_one")

    other = cli("replay", "last", "--mode", "model", "--log", log)
    nowhere = cli("replay", "last", "--mode", "dry-run", "--agent", "nowhere:make", "--log", log)
    nothing = cli("replay", "last", "--mode", "dry-run", "--agent", "json:dumps", "--log", log)

    its_own = cli("replay", "last", "--mode", "dry-run", "--agent", "tests.replay.replayed:agent", "--log", log)

    assert (its_own.exit_code, "There is no tool 'bash'." in its_own.stdout) == (1, True)
    assert other.exit_code == 2
    assert "has no answers of a model" in other.stderr
    assert "does not name an agent: No module named 'nowhere'" in nowhere.stderr
    assert (nothing.exit_code, "does not name an agent" in nothing.stderr) == (2, True)


@pytest.mark.parametrize("option", [("--at", "3"), ("--step",)])
def test_stepping_is_for_what_was_recorded(cli: Run, ran: Result, option: tuple[str, ...]) -> None:
    result = cli("replay", "last", "--mode", "model", *option)

    assert result.exit_code == 2
    assert "--at and --step require --mode trace" in result.stderr


def test_the_state_at_an_event_has_the_conversation(cli: Run, ran: Result) -> None:
    events = json.loads(cli("replay", "last", "--json").stdout)["events"]
    last = events[-1]["seq"]

    shown = cli("replay", "last", "--at", last).stdout
    found = json.loads(cli("replay", "last", "--at", last, "--json").stdout)

    assert "  person: Look.\n" in shown
    assert "  model: calls read_file, list_dir\n" in shown
    assert shown.endswith("  model: Done.\n")
    assert [each["type"] for each in found["state"]["conversation"]] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant"),
    ]
