"""`interlock runs list`, `show`, `cancel` and `fork`: which runs there are, and where one stands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from interlock import MemoryLog
from interlock.agent.agent import Agent
from interlock.cli.display.run_details import load_run_details
from interlock.cli.display.run_list import RunFilter, list_runs
from interlock.domain.event import RunFailed, RunStarted
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.rendering.run_states import DisplayState
from interlock.runs.runner import Runner
from tests.history.recorded import record

from .conftest import Run, newest
from .runs_program import TASK, damage, mailer, program, recorded, resumed, said_by, sent

FREE = ("add", {"a": 1, "b": 2})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def boss(folder: Path) -> Agent:
    """An agent that lets the mailer do it: a run inside a call."""
    turns = [
        ScriptedTurn(calls=(tool_call("ask_mailer", task="send it", call_id="call_1"),)),
        ScriptedTurn(text="It was sent."),
    ]
    return Agent(name="boss", provider=ScriptedModel(turns, by_position=True), tools=[mailer(folder).as_tool()])


def nested(folder: Path, cli: Run) -> str:
    """A run that waits for a run inside of it: the call itself was approved."""
    run_id = recorded(folder, boss(folder)).run_id
    cli("approvals", "approve", newest(cli, folder / "runs.db"), "--log", folder / "runs.db")
    resumed(folder, boss(folder))
    return run_id


def test_the_list_has_the_newest_first_with_state_agent_task_and_questions(tmp_path: Path, log: Path, cli: Run) -> None:
    done = recorded(tmp_path, mailer(tmp_path, FREE), "add it up")
    waits = recorded(tmp_path)

    listed = json.loads(cli("runs", "list", "--json", "--log", log).stdout)
    titles, *lines = cli("runs", "list", "--log", log).stdout.splitlines()

    assert [(run["run_id"], run["state"], run["agent"], run["task"], run["questions"]) for run in listed] == [
        (waits.run_id, "paused_approval", "mailer", TASK, 1),
        (done.run_id, "completed", "mailer", "add it up", 0),
    ]
    assert titles.split() == ["RUN", "STATE", "AGENT", "STARTED", "QUESTIONS", "TASK"]
    assert lines[0].split()[:3] == [waits.run_id[4:12], "paused_approval", "mailer"]
    assert lines[0].endswith(f"1          {TASK}")


def test_the_list_can_be_of_some_states_and_of_a_few(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, mailer(tmp_path, FREE))
    recorded(tmp_path)
    recorded(tmp_path, mailer(tmp_path, FREE))
    recorded(tmp_path)
    cli("approvals", "approve", newest(cli, log), "--log", log)

    def states(*words: object) -> list[str]:
        return [run["state"] for run in json.loads(cli("runs", "list", *words, "--json", "--log", log).stdout)]

    assert states() == ["stopped", "completed", "paused_approval", "completed"]
    assert states("--state", "paused_approval", "--state", "stopped") == ["stopped", "paused_approval"]
    assert states("--limit", "1") == ["stopped"]
    assert cli("runs", "list", "--state", "failed", "--log", log).stdout == "No matching runs.\n"
    assert cli("runs", "list", "--state", "fine", "--log", log).exit_code == 2


async def test_rejected_and_expired_runs_are_listed_apart() -> None:
    log = MemoryLog()
    codes = {"run_1": "tool_failed", "run_2": "user_denied", "run_3": "approval_expired"}
    for run_id, code in codes.items():
        log.append(run_id, record([RunStarted(schema=1, agent="a"), RunFailed(message="No.", code=code)], run_id))

    async def listed(*states: DisplayState) -> dict[str, DisplayState]:
        found = await list_runs(log, RunFilter(limit=9, states=frozenset(states)), held_ids=())
        return {run.run_id: run.state for run in found}

    assert await listed() == {
        "run_3": DisplayState.EXPIRED,
        "run_2": DisplayState.REJECTED,
        "run_1": DisplayState.FAILED,
    }
    assert await listed(DisplayState.FAILED) == {"run_1": DisplayState.FAILED}
    assert (await load_run_details(log, "run_2")).state is DisplayState.REJECTED


def test_a_run_that_a_living_process_has_is_running(tmp_path: Path, log: Path, cli: Run) -> None:
    with program(tmp_path, "hanging") as process:
        run_id = said_by(process)
        assert said_by(process) == "hanging"
        shown = json.loads(cli("runs", "show", run_id, "--json", "--log", log).stdout)

    after = json.loads(cli("runs", "show", run_id, "--json", "--log", log).stdout)
    assert (shown["state"], shown["held_by"].split()[:2]) == ("running", ["process", str(process.pid)])
    assert (after["state"], after["held_by"]) == ("stopped", "")


def test_without_a_log_there_are_no_runs_and_none_is_made(cli: Run, home: Path, tmp_path: Path) -> None:
    ended = cli("runs", "list")

    assert (ended.exit_code, ended.stdout) == (0, "No runs yet. `interlock run` starts one.\n")
    assert json.loads(cli("runs", "list", "--json").stdout) == []
    assert cli("runs", "list", "--log", tmp_path / "other.db").exit_code == 2
    assert list(home.iterdir()) == []


def test_a_run_that_cannot_be_read_is_listed_as_damaged(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, mailer(tmp_path, FREE))
    recorded(tmp_path, run_id="run_folded")
    recorded(tmp_path, run_id="run_started")
    damage(log, "run_folded")
    damage(log, "run_started", 0)

    listed = json.loads(cli("runs", "list", "--json", "--log", log).stdout)
    shown = cli("runs", "show", "run_folded", "--log", log)

    assert [run["state"] for run in listed] == ["damaged", "damaged", "completed"]
    assert shown.exit_code == 2
    assert "event 3 of run_folded" in shown.stderr


async def test_a_long_list_reads_only_the_runs_that_it_shows(tmp_path: Path) -> None:
    log = _Counting()
    async with Runner(mailer(tmp_path, FREE), log=log) as runner:
        for _ in range(60):
            await runner.run(TASK)
    log.reads = 0

    listed = await list_runs(log, RunFilter(limit=5), ())

    assert (len(listed), log.reads) == (5, 5)


class _Counting(MemoryLog):
    reads = 0

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Any]:
        self.reads += 1
        return await super().read(run_id, after_seq, limit)


def test_show_says_what_was_done_and_what_to_type_next(tmp_path: Path, log: Path, cli: Run) -> None:
    result = recorded(tmp_path)
    run, question = result.run_id[4:12], result.questions[0].action_id[4:12]

    lines = cli("runs", "show", "last", "--log", log).stdout.splitlines()

    assert lines[0].startswith(f"run {run}: paused_approval, last event ")
    assert f"  id:           {result.run_id}" in lines
    assert "  verification: none: No test or check was run." in lines
    story = [line.split() for line in lines[lines.index("") + 1 : lines.index("open questions:") - 1]]
    assert [words[:6] for words in story] == [
        ["you", *TASK.split()[:5]],
        ["model", "Step", "1."],
        ["add", "a", "1,", "b", "2", "ok"],
        ["model", "Step", "2."],
    ]
    assert re.search(rf"^  {question}  send: to=bob, asked \d+ s ago$", "\n".join(lines), re.MULTILINE)
    assert lines[-3:] == [
        f"  interlock approvals show {question} --log {log}",
        f"  interlock runs resume {run} --log {log}",
        f"  interlock runs cancel {run} --log {log}",
    ]


def test_show_of_a_run_that_is_over_has_answers_outcomes_and_usage(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, mailer(tmp_path, text="All tests pass."))
    cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)
    resumed(tmp_path, mailer(tmp_path, text="All tests pass."))

    shown = json.loads(cli("runs", "show", "last", "--json", "--log", log).stdout)

    told = [(each["who"], each["what"], each["outcome"].split(" ")[0]) for each in shown["conversation"]]
    assert ("ada", "send bob", "approved,") in told
    assert "approved, on the command line, proved" in [each["outcome"] for each in shown["conversation"]]
    assert ("send", "bob", "ok") in told
    assert ("model", "All tests pass.", "") in told
    assert (shown["tool_calls"], shown["agent"]) == (2, "mailer")
    assert shown["verification"]["status"] == "none"


def test_nothing_that_was_said_in_a_run_acts_on_the_terminal(tmp_path: Path, log: Path, cli: Run) -> None:
    evil = "\x1b]0;x\x07\x1b[2J\x9b31m\u202e\r\nrun 00000000: completed"
    recorded(tmp_path, mailer(tmp_path, ("add", {"a": evil}), (evil, {}), text=evil), evil)

    said = [cli("runs", *words, "--log", log).stdout for words in (("list",), ("list", "--json"))]
    for word in ("show", "events", "watch"):
        said += [cli("runs", word, "last", *more, "--log", log).stdout for more in ((), ("--json",))]

    assert all(said)
    assert not any(ord(sign) < 32 and sign != "\n" for text in said for sign in text)
    assert not any(sign in text for text in said for sign in "\x9b\u202e\x7f")


def test_a_run_inside_a_call_is_shown_with_the_run_around_it(tmp_path: Path, log: Path, cli: Run) -> None:
    run_id = nested(tmp_path, cli)

    listed = json.loads(cli("runs", "list", "--json", "--log", log).stdout)
    everything = json.loads(cli("runs", "list", "--nested", "--json", "--log", log).stdout)
    shown = json.loads(cli("runs", "show", "last", "--json", "--log", log).stdout)
    (child,) = shown["inside"]
    of_child = json.loads(cli("runs", "show", short_of(child["run_id"]), "--json", "--log", log).stdout)

    assert [(run["run_id"], run["state"], run["questions"]) for run in listed] == [(run_id, "paused_approval", 1)]
    assert len(everything) == 2
    assert (child["state"], child["agent"]) == ("paused_approval", "mailer")
    assert (of_child["run_id"], of_child["parent_run_id"]) == (child["run_id"], run_id)
    assert shown["questions"][0]["run_id"] == child["run_id"]


def short_of(run_id: str) -> str:
    outer, inner = run_id.split(".")
    return f"{outer[4:12]}.{inner[:4]}"


def test_the_answer_to_a_run_inside_a_call_names_the_run_to_resume(tmp_path: Path, log: Path, cli: Run) -> None:
    run_id = nested(tmp_path, cli)

    ended = cli("approvals", "approve", newest(cli, log), "--log", log)

    assert f"interlock runs resume {run_id[4:12]} --log" in ended.stdout
    assert (resumed(tmp_path, boss(tmp_path)).text, sent(tmp_path)) == ("It was sent.", ["bob"])


def test_cancelling_a_run_cancels_the_runs_inside_of_it(tmp_path: Path, log: Path, cli: Run) -> None:
    run_id = nested(tmp_path, cli)

    ended = json.loads(cli("runs", "cancel", run_id, "--by", "ada", "--json", "--log", log).stdout)

    everything = json.loads(cli("runs", "list", "--nested", "--json", "--log", log).stdout)
    assert (ended["how"], ended["message"]) == ("recorded", "Cancelled by ada.")
    assert [run["state"] for run in everything] == ["cancelled", "cancelled"]
    assert cli("approvals", "list", "--log", log).stdout == "No open questions.\n"


def test_a_run_that_is_over_cannot_be_cancelled(tmp_path: Path, log: Path, cli: Run) -> None:
    run_id = recorded(tmp_path, mailer(tmp_path, FREE)).run_id

    ended = cli("runs", "cancel", run_id, "--log", log)

    assert (ended.exit_code, ended.stderr) == (1, f"interlock: {run_id} is completed already.\n")


def test_a_fork_is_a_new_run_whose_questions_are_its_own(tmp_path: Path, log: Path, cli: Run) -> None:
    first = recorded(tmp_path)

    forked = json.loads(cli("runs", "fork", "last", "--json", "--log", log).stdout)
    waiting = resumed(tmp_path)
    shown = json.loads(cli("runs", "show", first.run_id, "--json", "--log", log).stdout)
    listed = json.loads(cli("approvals", "list", "--json", "--log", log).stdout)

    assert (forked["forked_from"], waiting.run_id) == (first.run_id, forked["run_id"])
    assert shown["forks"] == [forked["run_id"]]
    assert [each["run_id"] for each in listed] == [first.run_id, forked["run_id"]]
    assert cli("runs", "fork", "last", "--at", "999", "--log", log).exit_code == 2
