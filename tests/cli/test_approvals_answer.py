"""`interlock approvals approve`, `reject` and `answer`: what an answer may be, and what is said about it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import PolicyFiles, SqliteLog
from interlock.agent.agent import Agent
from interlock.domain.decision import Decision, Verdict
from interlock.runs.runner import Runner

from .conftest import Run, newest
from .runs_program import mailer, recorded, resumed, sent
from .scripts import on_terminal


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
        f"{name} is approved: send: to=bob\n"
        f"No process has run {run}. To resume it: interlock runs resume {run} --log {log}\n"
    )
    shown = json.loads(cli("approvals", "show", name, "--json", "--log", log).stdout)
    answer = {"approved": True, "by": "ada", "reason": "fine", "channel": "cli", "assurance": "proved"}
    assert (shown["state"], shown["answer"]) == ("approved", answer)
    assert (resumed(tmp_path).text, sent(tmp_path)) == ("All done.", ["bob"])


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_the_first_answer_stands_and_the_second_hears_whose_it_was(
    tmp_path: Path, log: Path, cli: Run, second: str
) -> None:
    name = recorded(tmp_path).questions[0].action_id
    cli("approvals", "reject", name, "--by", "ada", "--log", log)

    ended = cli("approvals", second, name, "--by", "eve", "--log", log)

    assert (ended.exit_code, ended.stdout) == (1, "")
    said = rf"interlock: {name[4:12]} was already decided: rejected, by ada, at 2.+ UTC\. The first answer counts\.\n"
    assert re.fullmatch(said, ended.stderr), ended.stderr
    assert (resumed(tmp_path).status, sent(tmp_path)) == ("COMPLETED", [])


def test_the_answer_of_somebody_without_a_name_has_their_login_name(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    answer = json.loads(cli("approvals", "reject", newest(cli, log), "--json", "--log", log).stdout)["answer"]

    assert (answer["approved"], bool(answer["by"])) == (False, True)


def test_arguments_can_be_changed_one_by_one_and_from_a_file(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)
    cli("approvals", "approve", newest(cli, log), "--set", "to=eve=x", "--log", log)
    resumed(tmp_path)
    recorded(tmp_path)
    (tmp_path / "new.json").write_text('{"to": "mallory"}')
    cli("approvals", "approve", newest(cli, log), "--edit", tmp_path / "new.json", "--log", log)
    resumed(tmp_path)
    recorded(tmp_path)
    cli("approvals", "approve", newest(cli, log), "--edit", "-", "--log", log, input='{"to": "ada"}')
    resumed(tmp_path)

    assert sent(tmp_path) == ["eve=x", "mallory", "ada"]


def test_what_is_said_to_be_approved_is_what_will_run(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    said = cli("approvals", "approve", newest(cli, log), "--set", "to=eve", "--log", log).stdout.splitlines()[0]

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

    ended = cli("approvals", "approve", newest(cli, log), *words, "--log", log, input="[1]")

    assert ended.exit_code == 2
    assert said in ended.stderr
    assert len(json.loads(cli("approvals", "list", "--json", "--log", log).stdout)) == 1


def test_a_yes_for_the_run_covers_the_same_call_again(tmp_path: Path, log: Path, cli: Run) -> None:
    agent = asking(tmp_path, Verdict.ASK, ("send", {"to": "bob"}), ("send", {"to": "bob"}), scope="run")
    recorded(tmp_path, agent)

    assert cli("approvals", "approve", newest(cli, log), "--scope", "run", "--log", log).exit_code == 0
    assert resumed(tmp_path, agent).status == "COMPLETED"
    assert sent(tmp_path) == ["bob", "bob"]


@pytest.mark.parametrize(("value", "mail"), [("eve", "eve"), ('="a b"', "a b"), ("1=2", "1=2")])
def test_a_value_is_text_or_after_an_equals_sign_json(
    tmp_path: Path, log: Path, cli: Run, value: str, mail: str
) -> None:
    agent = asking(tmp_path, Verdict.REQUEST_INPUT, prompt="To whom?", target_arg="to")
    recorded(tmp_path, agent)

    refused = cli("approvals", "approve", newest(cli, log), "--log", log)
    ended = cli("approvals", "answer", newest(cli, log), value, "--log", log)
    resumed(tmp_path, agent)

    assert refused.exit_code == 2
    assert "asks for a value: `interlock approvals answer" in refused.stderr
    assert (ended.exit_code, (tmp_path / "sent").read_text()) == (0, f"{mail}\n")


def test_a_question_for_approval_takes_no_value(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    ended = cli("approvals", "answer", newest(cli, log), "eve", "--log", log)

    assert ended.exit_code == 2
    assert "asks for no value" in ended.stderr


def test_where_the_risk_is_high_a_yes_says_what_was_looked_at(tmp_path: Path, log: Path, cli: Run) -> None:
    question = recorded(tmp_path, asking(tmp_path, Verdict.ASK, risk=("deletes what is not kept",))).questions[0]
    start = question.payload_hash.removeprefix("sha256:")[:8]

    shown = cli("approvals", "show", "last", "--log", log).stdout
    without = cli("approvals", "approve", newest(cli, log), "--log", log)
    short = cli("approvals", "approve", newest(cli, log), "--hash", start[:3], "--log", log)
    other = cli("approvals", "approve", newest(cli, log), "--hash", "0" * 64, "--log", log)
    ended = cli("approvals", "approve", newest(cli, log), "--hash", start, "--log", log)

    assert (without.exit_code, short.exit_code, other.exit_code, ended.exit_code) == (2, 1, 1, 0)
    assert "The risk is high (deletes what is not kept)" in without.stderr
    assert start not in without.stderr
    assert f"does not begin with '{'0' * 64}'. Nothing was answered." in other.stderr
    assert f"interlock approvals approve {question.action_id[4:12]} --hash {start} --log {log}\n" in shown


def test_what_changed_between_the_question_and_the_yes_is_asked_again(tmp_path: Path, log: Path, cli: Run) -> None:
    first = recorded(tmp_path).questions[0]
    cli("approvals", "approve", newest(cli, log), "--log", log)
    changed = asking(tmp_path, Verdict.ASK, ("add", {"a": 1, "b": 2}), ("send", {"to": "bob"}))

    waiting = resumed(tmp_path, changed)

    assert (waiting.status, sent(tmp_path)) == ("PAUSED_APPROVAL", [])
    said = cli("approvals", "show", "last", "--log", log).stdout
    assert "changed since it was asked before:" in said
    assert f"instead of: {first.action_id}" in said


@pytest.mark.parametrize("how", [("approve",), ("reject",), ("answer", "x")], ids=["approve", "reject", "answer"])
@pytest.mark.parametrize("wanted", ["last", "a few letters"])
def test_inexact_name_needs_what_was_shown(
    tmp_path: Path, log: Path, cli: Run, how: tuple[str, ...], wanted: str
) -> None:
    fields = {"target_arg": "to"} if how[0] == "answer" else {}
    verdict = Verdict.REQUEST_INPUT if fields else Verdict.ASK
    question = recorded(tmp_path, asking(tmp_path, verdict, **fields)).questions[0]
    name = wanted if wanted == "last" else question.action_id[4:9]
    digest = question.payload_hash.rpartition(":")[2]

    refused = cli("approvals", how[0], name, *how[1:], "--log", log)
    other = cli("approvals", how[0], name, *how[1:], "--hash", "0" * 8, "--log", log)
    still = json.loads(cli("approvals", "show", "last", "--json", "--log", log).stdout)
    named = cli("approvals", how[0], name, *how[1:], "--hash", digest[:8], "--log", log)

    assert (refused.exit_code, other.exit_code, still["state"], named.exit_code) == (2, 1, "open", 0)
    assert f"interlock approvals show {name}" in refused.stderr
    assert "--hash" in refused.stderr


def test_last_is_confirmed_at_a_terminal(tmp_path: Path, log: Path) -> None:
    """The question is shown in full first, and only a yes to it answers it."""
    question = recorded(tmp_path).questions[0]
    ends: list[int] = []
    for typed in ("n\n", "y\n"):
        with on_terminal("approvals", "approve", "last", "--log", log) as here:
            shown = here.sees("[y/N]")
            here.types(typed)
            ends.append(here.ends())

    assert (question.payload_hash in shown, ends) == (True, [2, 0])


RULE = '{"decision": "allow", "tools": "send", "arguments": {"to": {"is": "bob"}}}'
NARROWER = '{"decision": "allow", "tools": "send", "arguments": {"to": {"is": "bob"}}, "agent": "mailer"}'


@pytest.mark.requirement("P22")
@pytest.mark.parametrize("rule", ["", NARROWER])
def test_scope_rule_keeps_suggested_or_narrower(tmp_path: Path, log: Path, cli: Run, rule: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\n")
    agent = msgspec.structs.replace(mailer(tmp_path), policy=PolicyFiles(user=file))
    recorded(tmp_path, msgspec.structs.replace(mailer(tmp_path), name="courier"))
    suggested = recorded(tmp_path, agent).questions[0].suggested_rule

    ended = cli(
        "approvals", "approve", newest(cli, log), "--scope", "rule", *(("--rule", rule) if rule else ()), "--log", log
    )
    assert (ended.exit_code, (rule or suggested) in ended.stdout) == (0, True)
    assert "Other agents in this log: courier" in ended.stdout
    resumed(tmp_path, agent)

    assert (sent(tmp_path), '"send"' in file.read_text(), '"agent"' in file.read_text()) == (["bob"], True, bool(rule))


@pytest.mark.requirement("P22")
@pytest.mark.parametrize(
    ("options", "suggested", "problem"),
    [
        (("--rule", "{decision: allow}"), RULE, "not provably narrower"),
        (("--rule", "{decision: allow, tools: send}"), RULE, "not provably narrower"),
        ((), "", "No rule was suggested"),
    ],
)
def test_other_rules_answer_nothing(
    tmp_path: Path, cli: Run, options: tuple[str, ...], suggested: str, problem: str
) -> None:
    log = tmp_path / "runs.db"
    recorded(tmp_path, asking(tmp_path, Verdict.ASK, scope="rule", suggested_rule=suggested))

    ended = cli("approvals", "approve", newest(cli, log), "--scope", "rule", *options, "--log", log)
    shown = json.loads(cli("approvals", "show", "last", "--json", "--log", log).stdout)

    assert (ended.exit_code, problem in ended.stderr, shown["state"]) == (2, True, "open")


@pytest.mark.requirement("P22")
def test_rules_of_a_server_are_kept_there(tmp_path: Path, log: Path, cli: Run) -> None:
    agent = asking(tmp_path, Verdict.ASK, scope="rule", suggested_rule=RULE)

    async def start() -> None:
        async with SqliteLog(log) as opened, Runner(agent, log=opened) as runner:
            await (await runner.start("Send it.", requester="user:ada", created_by="key:bot")).result()

    asyncio.run(start())
    ended = cli("approvals", "approve", newest(cli, log), "--scope", "rule", "--log", log)

    assert (ended.exit_code, "made on a server" in ended.stderr) == (2, True)


def test_rule_without_its_scope_is_bad_usage(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    assert cli("approvals", "approve", newest(cli, log), "--rule", RULE, "--log", log).exit_code == 2
