"""Runs of another framework's agent, and sessions of clients: people answer here, and that program continues them."""

import asyncio
from pathlib import Path

import pytest

from interlock.gate.sessions import Sessions
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


@pytest.fixture
def session_log(log: Path, tmp_path: Path) -> Path:
    async def ask() -> None:
        async with open_gate(tmp_path) as gate:
            sessions = Sessions(gate)
            session = await sessions.open(requester="user:ada", client="claude-code", framework="mcp")
            settled = await sessions.call(session, intent("pay", "s1", amount=6), Desk(tmp_path).pay)
            assert settled.question is not None

    asyncio.run(ask())
    return log


def test_sessions_are_listed_apart_from_runs_of_agents(session_log: Path, cli: Run) -> None:
    listed = cli("runs", "list", "--kind", "session", "--log", session_log).stdout

    assert "session over mcp for user:ada" in listed
    assert "claude-code" in listed
    assert "lg:t1" not in listed
    assert "session over mcp" not in cli("runs", "list", "--kind", "agent", "--log", session_log).stdout


def test_a_session_shows_its_client_and_how_it_continues(session_log: Path, cli: Run) -> None:
    shown = cli("runs", "show", "last", "--log", session_log).stdout
    answered = cli("approvals", "approve", newest(cli, session_log), "--by", "ada", "--log", session_log)
    resumed = cli("runs", "resume", "last", "--log", session_log)

    assert "session of:   claude-code over mcp: it continues a call by making the same call again" in shown
    assert "runs resume" not in shown
    assert "is a session of claude-code" in " ".join(answered.stdout.split())
    assert "continues a call by making it again" in " ".join(resumed.stderr.split())
