"""Runs of another framework's agent: people answer here, and its own program continues them."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.conftest import Run, newest
from tests.gate.support import Desk, intent, open_gate


@pytest.fixture
def log(tmp_path: Path) -> Path:
    async def ask() -> None:
        async with open_gate(tmp_path) as gate:
            settled = await gate.call("lg:t1", intent("pay", "c1"), Desk(tmp_path).pay, framework="langgraph")
            assert settled.question is not None

    asyncio.run(ask())
    return tmp_path / "state" / "runs.db"


def test_an_approval_names_the_program_that_continues(log: Path, cli: Run) -> None:
    answered = cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)

    assert answered.exit_code == 0
    assert "continues in the program that made it, with langgraph" in " ".join(answered.stdout.split())
    assert "runs resume" not in answered.stdout


def test_a_run_shows_its_framework_and_no_way_to_resume_it_here(log: Path, cli: Run) -> None:
    shown = cli("runs", "show", "last", "--log", log)

    assert "langgraph: the program that made the run continues it" in shown.stdout
    assert "approvals show" in shown.stdout
    assert "runs resume" not in shown.stdout


def test_it_cannot_be_resumed_here(log: Path, cli: Run) -> None:
    resumed = cli("runs", "resume", "last", "--log", log)

    assert resumed.exit_code != 0
    assert "was made by a program with langgraph" in " ".join(resumed.stderr.split())


def test_it_is_idle_between_its_calls(log: Path, cli: Run) -> None:
    cli("approvals", "reject", newest(cli, log), "--by", "ada", "--log", log)

    assert "idle" in cli("runs", "list", "--log", log).stdout
