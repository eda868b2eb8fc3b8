"""`interlock approvals approve`, `reject` and `answer`: what an answer may be, and what is said about it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.agent.agent import Agent
from interlock.domain.decision import Decision, Verdict

from .conftest import Run
from .runs_program import mailer, recorded, resumed, sent


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


class Asks:
    """A policy that asks about every mail in the same way."""

    digest = "sha256:1"

    def __init__(self, verdict: Verdict, **fields: Any) -> None:
        self._decision = Decision(verdict=verdict, reason="Mails are asked about.", **fields)

    def evaluate(self, event: Any) -> Decision:
        return self._decision if event.tool_name == "send" else Decision(verdict=Verdict.ALLOW, reason="Fine.")


def asking(folder: Path, verdict: Verdict, *calls: tuple[str, dict[str, Any]], **fields: Any) -> Agent:
    agent = mailer(folder, *(calls or (("send", {"to": "bob"}),)))
    return msgspec.structs.replace(agent, policy=Asks(verdict, **fields))


def test_an_approval_is_recorded_with_who_and_why_and_says_how_to_go_on(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path).questions[0]

    ended = cli("approvals", "approve", question.action_id[4:12], "--by", "ada", "--reason", "fine", "--log", log)

    name, run = question.action_id[4:12], question.run_id[4:12]
    assert ended.stdout == (
        f"{name} is approved: send\n"
        f"No process has run {run}. To go on with it: interlock runs resume {run} --log {log}\n"
    )
    shown = json.loads(cli("approvals", "show", name, "--json", "--log", log).stdout)
    assert (shown["state"], shown["answer"]) == ("approved", {"approved": True, "by": "ada", "reason": "fine"})
    assert (resumed(tmp_path).text, sent(tmp_path)) == ("All done.", ["bob"])


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_the_first_answer_stands_and_the_second_hears_whose_it_was(
    tmp_path: Path, log: Path, cli: Run, second: str
) -> None:
    name = recorded(tmp_path).questions[0].action_id
    cli("approvals", "reject", name, "--by", "ada", "--log", log)

    ended = cli("approvals", second, name, "--by", "eve", "--log", log)

    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == f"interlock: {name[4:12]} was decided before: it is rejected, by ada. That stands.\n"
    assert (resumed(tmp_path).status, sent(tmp_path)) == ("COMPLETED", [])


def test_the_answer_of_somebody_without_a_name_has_their_login_name(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    answer = json.loads(cli("approvals", "reject", "last", "--json", "--log", log).stdout)["answer"]

    assert (answer["approved"], bool(answer["by"])) == (False, True)


def test_arguments_can_be_changed_one_by_one_and_from_a_file(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)
    cli("approvals", "approve", "last", "--set", "to=eve=x", "--log", log)
    resumed(tmp_path)
    recorded(tmp_path)
    (tmp_path / "new.json").write_text('{"to": "mallory"}')
    cli("approvals", "approve", "last", "--edit", tmp_path / "new.json", "--log", log)
    resumed(tmp_path)
    recorded(tmp_path)
    cli("approvals", "approve", "last", "--edit", "-", "--log", log, input='{"to": "ada"}')
    resumed(tmp_path)

    assert sent(tmp_path) == ["eve=x", "mallory", "ada"]


def test_what_is_said_to_be_approved_is_what_will_run(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    said = cli("approvals", "approve", "last", "--set", "to=eve", "--log", log).stdout.splitlines()[0]

    assert said.partition(" is ")[2] == 'approved: send with other arguments than were asked: {"to": "eve"}'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "to"), "--set takes NAME=VALUE, not 'to'."),
        (("--set", "to=={"), "The value is not JSON:"),
        (("--set", "to="), "An empty text is no value."),
        (("--edit", "/nowhere/new.json"), "/nowhere/new.json cannot be read: No such file"),
        (("--edit", "-"), "- holds no JSON object"),
        (("--by", "x" * 201), "--by is longer than 200 characters."),
        (("--scope", "run", "--set", "to=eve"), "The question stays open."),
    ],
)
def test_what_cannot_be_the_answer_leaves_the_question_open(
    tmp_path: Path, log: Path, cli: Run, words: tuple[str, ...], said: str
) -> None:
    recorded(tmp_path)

    ended = cli("approvals", "approve", "last", *words, "--log", log, input="[1]")

    assert ended.exit_code == 2
    assert said in ended.stderr
    assert len(json.loads(cli("approvals", "list", "--json", "--log", log).stdout)) == 1


def test_a_yes_for_the_run_covers_the_same_call_again(tmp_path: Path, log: Path, cli: Run) -> None:
    agent = asking(tmp_path, Verdict.ASK, ("send", {"to": "bob"}), ("send", {"to": "bob"}), scope="run")
    recorded(tmp_path, agent)

    assert cli("approvals", "approve", "last", "--scope", "run", "--log", log).exit_code == 0
    assert resumed(tmp_path, agent).status == "COMPLETED"
    assert sent(tmp_path) == ["bob", "bob"]


@pytest.mark.parametrize(("value", "mail"), [("eve", "eve"), ('="a b"', "a b"), ("1=2", "1=2")])
def test_a_value_is_text_or_after_an_equals_sign_json(
    tmp_path: Path, log: Path, cli: Run, value: str, mail: str
) -> None:
    agent = asking(tmp_path, Verdict.REQUEST_INPUT, prompt="To whom?", target_arg="to")
    recorded(tmp_path, agent)

    refused = cli("approvals", "approve", "last", "--log", log)
    ended = cli("approvals", "answer", "last", value, "--log", log)
    resumed(tmp_path, agent)

    assert refused.exit_code == 2
    assert "asks for a value: `interlock approvals answer" in refused.stderr
    assert (ended.exit_code, (tmp_path / "sent").read_text()) == (0, f"{mail}\n")


def test_a_question_for_approval_takes_no_value(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    ended = cli("approvals", "answer", "last", "eve", "--log", log)

    assert ended.exit_code == 2
    assert "asks for no value" in ended.stderr


def test_where_the_risk_is_high_a_yes_says_what_was_looked_at(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path, asking(tmp_path, Verdict.ASK, risk=("deletes what is not kept",))).questions[0]
    start = question.payload_hash.removeprefix("sha256:")[:8]

    shown = cli("approvals", "show", "last", "--log", log).stdout
    without = cli("approvals", "approve", "last", "--log", log)
    short = cli("approvals", "approve", "last", "--hash", start[:3], "--log", log)
    other = cli("approvals", "approve", "last", "--hash", "0" * 64, "--log", log)
    ended = cli("approvals", "approve", "last", "--hash", start, "--log", log)

    assert (without.exit_code, short.exit_code, other.exit_code, ended.exit_code) == (2, 1, 1, 0)
    assert "The risk is high (deletes what is not kept)" in without.stderr
    assert start not in without.stderr
    assert f"does not begin with '{'0' * 64}'. Nothing was answered." in other.stderr
    assert f"interlock approvals approve {question.action_id[4:12]} --hash {start} --log {log}\n" in shown


def test_what_changed_between_the_question_and_the_yes_is_asked_again(tmp_path: Path, log: Path, cli: Run) -> None:
    first = recorded(tmp_path).questions[0]
    cli("approvals", "approve", "last", "--log", log)
    changed = asking(tmp_path, Verdict.ASK, ("add", {"a": 1, "b": 2}), ("send", {"to": "bob"}))

    waiting = resumed(tmp_path, changed)

    assert (waiting.status, sent(tmp_path)) == ("PAUSED_APPROVAL", [])
    said = cli("approvals", "show", "last", "--log", log).stdout
    assert "changed since it was asked before:" in said
    assert f"instead of: {first.action_id}" in said
