"""`interlock approvals list` and `show`: what is asked in all runs, and everything that there is to know about it."""

import json
from pathlib import Path

import pytest

from interlock import tool
from interlock.agent.agent import Agent

from .conftest import Run
from .runs_program import damage, mailer, recorded, sent


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_the_list_has_the_open_questions_of_all_runs_oldest_first(tmp_path: Path, log: Path, cli: Run) -> None:
    first = recorded(tmp_path).questions[0]
    second = recorded(tmp_path, mailer(tmp_path, ("send", {"to": "eve"}))).questions[0]

    listed = json.loads(cli("approvals", "list", "--json", "--log", log).stdout)
    of_one = json.loads(cli("approvals", "list", "--run", second.run_id[:14], "--json", "--log", log).stdout)

    assert [each["action_id"] for each in listed] == [first.action_id, second.action_id]
    assert [(each["tool_name"], each["arguments"], each["state"]) for each in of_one] == [
        ("send", {"to": "eve"}, "open")
    ]


@pytest.mark.requirement("R148", "R149")
def test_a_line_of_the_list_has_what_is_needed_to_choose(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path).questions[0]

    titles, line = cli("approvals", "list", "--log", log).stdout.splitlines()

    assert titles.split() == ["ID", "RUN", "TOOL", "AGE", "EXPIRES", "RISK", "WHAT"]
    words = line.split()
    assert words[:3] == [question.action_id[4:12], question.run_id[4:12], "send"]
    assert words[-4:] == ["never", "write", "send:", "to=bob"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--search", "BOB"], ["bob"]),
        (["--search", "to>=1000 send"], ["1200"]),
        (["--search", "to<1000"], []),
        (["--tool", "send", "--risk", "write", "--agent", "mailer"], ["bob", "1200"]),
        (["--sort", "newest"], ["1200", "bob"]),
        (["--sort", "deadline"], ["bob", "1200"]),
        (["--older-than", "1d"], []),
        (["--requester", "user:mia"], []),
        (["--rule", "no-such-rule"], []),
        (["--agent", "other"], []),
    ],
)
def test_the_list_is_searched_filtered_and_sorted(
    tmp_path: Path, log: Path, cli: Run, options: list[str], expected: list[str]
) -> None:
    for to in ("bob", "1200"):
        recorded(tmp_path, mailer(tmp_path, ("send", {"to": to})))

    listed = json.loads(cli("approvals", "list", "--json", "--log", log, *options).stdout)

    assert [each["arguments"]["to"] for each in listed] == expected
    if not expected:
        assert cli("approvals", "list", "--log", log, *options).stdout == "No open question matches.\n"


def test_without_open_questions_the_list_says_so(tmp_path: Path, log: Path, cli: Run, home: Path) -> None:
    recorded(tmp_path, mailer(tmp_path, ("add", {"a": 1, "b": 2})))

    assert cli("approvals", "list", "--log", log).stdout == "No open questions.\n"
    assert cli("approvals", "list").stdout == "No open questions.\n"
    assert json.loads(cli("approvals", "list", "--json").stdout) == []


@pytest.mark.requirement("R149")
def test_show_has_everything_that_a_person_at_the_terminal_sees(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path).questions[0]

    said = cli("approvals", "show", question.action_id, "--log", log).stdout

    for line in (
        "May this call run?",
        "tool: send",
        "  to | bob",
        "asked by: default",
        f"hash: {question.payload_hash}",
        f"id: {question.action_id}",
        f"run: {question.run_id}, agent mailer, call call_2",
        f"interlock approvals approve {question.action_id[4:12]} --log {log}",
    ):
        assert line in said.splitlines()


def test_show_tells_which_file_changed_since_it_was_asked(tmp_path: Path, log: Path, cli: Run) -> None:
    (tmp_path / "script.sh").write_text("echo one\n")
    recorded(tmp_path, agent_that_runs_a_script(tmp_path))
    before = json.loads(cli("approvals", "show", "last", "--json", "--log", log).stdout)
    (tmp_path / "script.sh").write_text("echo other\n")

    after = json.loads(cli("approvals", "show", "last", "--json", "--log", log).stdout)
    said = cli("approvals", "show", "last", "--log", log).stdout

    assert (before["changed_since"], len(after["changed_since"])) == ([], 1)
    assert "CHANGED since it was asked, so it will be asked again:" in said


def test_nothing_in_a_question_acts_on_the_terminal(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, mailer(tmp_path, ("send", {"to": "\x1b[2J\x9b31m\u202e\r\nrisk: none"})))

    said = [cli("approvals", word, "--log", log).stdout for word in ("list",)]
    said += [cli("approvals", "show", "last", *more, "--log", log).stdout for more in ((), ("--json",))]

    assert not any(ord(sign) < 32 and sign != "\n" for text in said for sign in text)
    assert not any(sign in text for text in said for sign in "\x9b\u202e")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nothing", "Unknown question `nothing`. Open are: "),
        ("", "Unknown question ``."),
        ("act_", "Unknown question `act_`. At least 4 letters of its id name one. Open are: "),
    ],
)
def test_a_question_that_is_not_there_is_said_in_words(
    tmp_path: Path, log: Path, cli: Run, wanted: str, said: str
) -> None:
    recorded(tmp_path)
    recorded(tmp_path)

    ended = cli("approvals", "show", wanted, "--log", log)

    assert ended.exit_code == 2
    assert said in ended.stderr


def test_the_question_of_a_run_that_is_over_is_shown_and_open_no_more(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path).questions[0]
    cli("runs", "cancel", "last", "--log", log)

    assert cli("approvals", "list", "--log", log).stdout == "No open questions.\n"
    assert json.loads(cli("approvals", "show", question.action_id, "--json", "--log", log).stdout)["state"] == "void"
    ended = cli("approvals", "approve", question.action_id, "--log", log)
    assert (ended.exit_code, sent(tmp_path)) == (1, [])
    assert "is cancelled; its questions need no answer" in ended.stderr


def test_a_run_that_cannot_be_read_hides_no_question_of_another(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, run_id="run_damaged")
    recorded(tmp_path)
    damage(log, "run_damaged")

    listed = json.loads(cli("approvals", "list", "--json", "--log", log).stdout)

    assert len(listed) == 1


def agent_that_runs_a_script(folder: Path) -> Agent:
    @tool(risk="execute", resources={"path": "path"})
    def run_script(path: str) -> str:
        """Run a script."""
        return path

    return mailer(folder, ("run_script", {"path": str(folder / "script.sh")}), more=(run_script,))
