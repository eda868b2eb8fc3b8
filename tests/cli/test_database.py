"""`interlock database`: the schema of a log in Postgres."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock import Agent, Runner, tool
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.storage.postgres.migrate import MIGRATIONS, SCHEMA_VERSION
from tests.each import each
from tests.postgres.server import PostgresServer

from .conftest import Run


async def test_migrate_creates_the_schema_once(cli: Run, postgres: PostgresServer) -> None:
    where = ("--url", postgres.url, "--database-schema", "of_the_command")
    assert "no log; this Interlock uses version" in cli("database", "status", *where).stdout

    first = json.loads(cli("database", "migrate", *where, "--json").stdout)

    assert first["applied"] == [migration.stem for migration in MIGRATIONS]
    assert first["version"] == first["needed_version"] == SCHEMA_VERSION
    assert "nothing to do" in cli("database", "migrate", *where).stdout
    assert f"version {SCHEMA_VERSION}; this" in cli("database", "status", *where).stdout
    assert "worker can use the log" in cli("database", "grant", "worker", *where).stdout
    await postgres.open_log("of_the_command").close()


def test_unreachable_database_is_one_sentence(cli: Run) -> None:
    result = cli("database", "status", "--url", "postgresql://ann:hunter2@127.0.0.1:1/runs")

    assert (result.exit_code, "cannot open the database runs on 127.0.0.1" in result.stderr) == (2, True)
    assert "hunter2" not in result.stderr


@pytest.fixture
def place(home: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `--log` names: an empty log in Postgres."""
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", postgres.worker_url)
    return f"postgres:{postgres.new_schema()}"


def test_runs_in_postgres_are_listed_verified_and_answered(cli: Run, place: str, postgres: PostgresServer) -> None:
    """Another host asks; here is only the command."""
    asked = asyncio.run(_ask(postgres, place.removeprefix("postgres:")))

    assert "deploy" in cli("approvals", "list", "--log", place).stdout
    waiting = cli("runs", "show", "run-on-another-host", "--log", place).stdout
    assert ("runs watch run-on-a" in waiting, "resume" in waiting) == (True, False)
    approved = cli("approvals", "approve", asked, "--by", "ann", "--log", place)
    assert (approved.exit_code, "A worker continues run run-on-a" in approved.stdout) == (0, True)

    assert json.loads(cli("approvals", "list", "--log", place, "--json").stdout) == []
    assert "run-on-another-host" in cli("runs", "list", "--log", place).stdout
    assert cli("audit", "verify", "run-on-another-host", "--log", place).exit_code == 0
    shown = cli("runs", "show", "run-on-another-host", "--log", place).stdout
    assert "ann" in shown


async def _ask(postgres: PostgresServer, schema: str) -> str:
    @tool(risk="write")
    def deploy() -> str:
        """Deploy."""
        return "deployed"

    model = ScriptedModel([ScriptedTurn(calls=(tool_call("deploy"),)), ScriptedTurn(text="Done.")], by_position=True)
    agent = Agent(name="helper", provider=model, tools=[deploy])
    async with postgres.open_log(schema) as log, Runner(agent, log=log) as runner:
        handle = await runner.start("Deploy it.", run_id="run-on-another-host")
        (question,) = (await handle.result()).questions
    return question.action_id


def test_a_run_that_no_worker_can_continue_says_why(cli: Run, place: str, postgres: PostgresServer) -> None:
    schema = place.removeprefix("postgres:")

    async def postpone() -> None:
        async with (
            postgres.open_log(schema) as log,
            Runner(Agent(name="clerk", provider=ScriptedModel([])), log=log) as runner,
        ):
            await runner.submit("Go.", run_id="run_1")
            await log.queues.look("run_1")
            await log.queues.postpone("run_1", 60, "Waits for a worker with the agent 'clerk'.")

    asyncio.run(postpone())
    shown = cli("runs", "show", "run_1", "--log", place).stdout
    assert "Waits for a worker with the agent 'clerk'." in shown


@each("command", [("run", "task"), ("storage", "status"), ("runs", "resume", "last")])
def test_commands_that_need_a_file_say_so(cli: Run, place: str, command: tuple[str, ...]) -> None:
    result = cli(*command, "--log", place)

    assert (result.exit_code != 0, "\n" not in result.stderr.strip()) == (True, True)


def test_missing_url_is_one_sentence(cli: Run, home: Path) -> None:
    result = cli("runs", "list", "--log", "postgres:")

    assert (result.exit_code, "INTERLOCK_DATABASE_URL has no URL" in result.stderr) == (2, True)


def test_reindex_makes_rows_of_older_versions_again(cli: Run, postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    asyncio.run(_ask(postgres, schema))
    postgres.execute("UPDATE runs SET indexed_seq = 0; DELETE FROM indexed_runs; DELETE FROM indexed_actions", schema)
    where = ("--url", postgres.url, "--database-schema", schema)

    assert "indexed 1 run" in cli("database", "reindex", *where).stdout

    assert "nothing to do" in cli("database", "reindex", *where).stdout
    assert postgres.query("SELECT run_id, status, open_questions FROM listed_runs", schema) == [
        ("run-on-another-host", "PAUSED_APPROVAL", 1)
    ]
    assert postgres.query("SELECT run_id, status FROM listed_actions", schema) == [("run-on-another-host", "PENDING")]
