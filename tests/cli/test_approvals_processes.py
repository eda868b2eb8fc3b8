"""Answers from another process than the one that has the run. The run goes on there, and nothing happens twice."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from interlock import SqliteLog
from interlock.cli.session import delivery
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.person import at_terminal
from tests.sandbox.ordinary_user import NOBODY, run_as_ordinary_user

from .conftest import Run, newest
from .runs_program import TASK, mailer, program, recorded, resumed, said_by, sent, started, wait_for


@pytest.mark.requirement("R131", "R148")
def test_a_living_process_takes_an_approval_from_outside_and_goes_on(tmp_path: Path, cli: Run) -> None:
    with program(tmp_path, "asking") as process:
        run_id = said_by(process)
        wait_for(tmp_path, run_id, "approval.requested")
        log = tmp_path / "runs.db"
        ended = cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert "is approved, and the call was started: send" in ended.stdout
        assert said_by(process) == "COMPLETED All done."

    assert sent(tmp_path) == ["bob"]


def test_a_process_that_applies_an_answer_at_once_is_named_as_owner(
    tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_until_taken(_: Inbox, run_id: str) -> bool:
        async with SqliteLog(tmp_path / "runs.db") as log, asyncio.timeout(HANG_SECONDS):
            version = log.version()
            while await log.queued_commands(run_id):
                await log.wait_for_change(version, HANG_SECONDS)
                version = log.version()
        return False

    monkeypatch.setattr(Inbox, "apply_queued", wait_until_taken)
    with program(tmp_path, "asking") as process:
        run_id = said_by(process)
        wait_for(tmp_path, run_id, "approval.requested")
        log = tmp_path / "runs.db"
        ended = cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)
        assert "To resume it" not in ended.stdout
        assert said_by(process) == "COMPLETED All done."


@pytest.mark.requirement("R133")
def test_a_living_process_takes_a_rejection_from_outside_and_the_model_is_told(tmp_path: Path, cli: Run) -> None:
    with program(tmp_path, "asking") as process:
        run_id = said_by(process)
        wait_for(tmp_path, run_id, "approval.requested")
        log = tmp_path / "runs.db"
        ended = cli("approvals", "reject", newest(cli, log), "--reason", "not today", "--log", log)
        assert ended.exit_code == 0
        assert "is rejected: send" in ended.stdout
        assert said_by(process) == "COMPLETED All done."

    shown = json.loads(cli("runs", "show", run_id, "--json", "--log", tmp_path / "runs.db").stdout)
    assert "not today" in str(shown["conversation"])
    assert sent(tmp_path) == []


def test_an_answer_that_a_stopped_process_cannot_take_is_kept_and_counts_when_it_goes_on(
    tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "TAKE_SECONDS", 0.2)
    with program(tmp_path, "asking") as process:
        run_id = said_by(process)
        wait_for(tmp_path, run_id, "approval.requested")
        log = tmp_path / "runs.db"
        os.kill(process.pid, signal.SIGSTOP)
        ended = cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)
        second = cli("approvals", "reject", newest(cli, log), "--by", "eve", "--log", log)
        os.kill(process.pid, signal.SIGCONT)
        assert said_by(process) == "COMPLETED All done."

    assert ended.exit_code == 3
    assert "did not read it yet" in ended.stdout
    assert second.exit_code == 1
    assert "already; that answer is queued." in second.stderr
    assert "ada approved" in second.stderr
    assert sent(tmp_path) == ["bob"]


def test_of_answers_from_several_processes_at_once_one_stands_and_nothing_is_done_twice(
    tmp_path: Path, cli: Run
) -> None:
    action_id = recorded(tmp_path).questions[0].action_id
    words = ("approvals", "approve", action_id, "--log", tmp_path / "runs.db", "--by")

    people = [started(*words, f"person{number}") for number in range(3)]
    ended = [(*person.communicate(timeout=HANG_SECONDS), person.returncode) for person in people]

    assert sorted(code for _, _, code in ended) == [0, 1, 1]
    (by,) = {said for _, errors, code in ended if code for said in re.findall(r"person\d", errors)}
    assert resumed(tmp_path).status == "COMPLETED"
    shown = json.loads(cli("approvals", "show", action_id, "--json", "--log", tmp_path / "runs.db").stdout)
    assert (shown["answer"]["by"], sent(tmp_path)) == (by, ["bob"])


async def test_a_question_on_a_terminal_is_withdrawn_when_it_was_answered_elsewhere(tmp_path: Path, cli: Run) -> None:
    with at_terminal() as person:
        async with (
            SqliteLog(tmp_path / "runs.db") as log,
            Runner(mailer(tmp_path), log=log, interaction=person.provider()) as runner,
        ):
            handle = await runner.start(TASK)
            await person.sees("d details: ")
            name = await asyncio.to_thread(newest, cli, tmp_path / "runs.db")
            words = ("approvals", "approve", name, "--by", "ada", "--log", tmp_path / "runs.db")
            ended = await asyncio.to_thread(cli, *words)
            result = await handle.result()
            await person.sees("It is not asked here any more.")

    assert (ended.exit_code, result.status, sent(tmp_path)) == (0, "COMPLETED", ["bob"])


def test_a_run_that_nobody_has_is_cancelled_from_outside(tmp_path: Path, cli: Run) -> None:
    recorded(tmp_path)

    ended = cli("runs", "cancel", "last", "--reason", "enough", "--by", "ada", "--log", tmp_path / "runs.db")

    assert (ended.exit_code, ended.stdout.split(maxsplit=1)[1]) == (0, "is cancelled. No process had it.\n")
    assert sent(tmp_path) == []


def test_a_living_process_ends_a_run_that_is_cancelled_from_outside(tmp_path: Path, cli: Run) -> None:
    with program(tmp_path, "hanging") as process:
        run_id = said_by(process)
        assert said_by(process) == "hanging"
        ended = cli("runs", "cancel", run_id, "--reason", "enough", "--by", "ada", "--log", tmp_path / "runs.db")
        assert said_by(process) == "FAILED Cancelled by ada: enough"

    assert ended.exit_code == 0
    assert "is cancelled by the process that has it." in ended.stdout


def test_an_ordinary_user_without_an_environment_answers_and_goes_on() -> None:
    with TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        log = f"{folder}/runs.db"
        run_as_ordinary_user("-m", "tests.cli.runs_program", folder, "headless")
        command = ("-c", "from interlock.cli.main import main; main()", "approvals")
        asked = json.loads(run_as_ordinary_user(*command, "list", "--json", "--log", log).stdout)
        ended = run_as_ordinary_user(*command, "approve", asked[-1]["action_id"], "--json", "--log", log)
        finished = run_as_ordinary_user("-m", "tests.cli.runs_program", folder, "resume")

    assert ended.stderr == ""
    assert json.loads(ended.stdout)["answer"]["approved"]
    assert finished.stdout.split(maxsplit=1)[1] == "COMPLETED All done.\n"
