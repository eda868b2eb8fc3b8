"""What a run costs a log in Postgres, counted: every append is one statement, with the rows of lists in it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from interlock import Agent, Inbox, Rule, RulePolicy, RunHandle, Runner, tool
from interlock.domain.errors import ConfigurationError, RunClaimedError
from interlock.domain.event import LogEntry
from interlock.domain.tool import ToolDefinition
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.storage.event_log import Lease
from interlock.storage.postgres import indexing, operations, writer
from interlock.storage.postgres.connection import Connection, Parameters, execute
from interlock.storage.postgres.queries import QUERIES
from tests.postgres.server import PostgresServer

_NAMES = {sql: name for name, sql in QUERIES.items()}


@tool(risk="write")
def step(number: int) -> str:
    """Change something."""
    return f"changed {number}"


@tool(risk="write")
def pay(number: int) -> str:
    """Change something that a person allows."""
    return f"paid {number}"


def _agent(*tools: ToolDefinition) -> Agent:
    turns = [ScriptedTurn(calls=(tool_call(each.name, number=number),)) for number, each in enumerate(tools)]
    rules = [Rule(id="ask", verdict="ask", tools="pay"), Rule(id="allow", verdict="allow", tools="step")]
    model = ScriptedModel([*turns, ScriptedTurn(text="Done.")], by_position=True)
    return Agent(name="clerk", provider=model, tools=[step, pay], policy=RulePolicy(rules))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The statements of writers, by their names."""
    counted: Counter[str] = Counter()

    def count(connection: Connection, sql: str, parameters: Parameters = ()) -> object:
        counted[_NAMES[sql]] += 1
        return execute(connection, sql, parameters)

    for module in (writer, operations, indexing):
        monkeypatch.setattr(module, "execute", count)
    return counted


async def test_run_of_five_steps_is_thirteen_appends_of_one_statement(
    postgres: PostgresServer, statements: Counter[str]
) -> None:
    """Two of them change what lists show, the first and the last. With them the lease begins and ends."""
    async with postgres.open_log(postgres.empty_schema()) as log, Runner(_agent(*[step] * 5), log=log) as runner:
        await runner.run("Do it.")

    assert statements == {"append_one": 11, "append_listed": 2, "find_released": 1}


async def test_answer_of_another_process_needs_no_read_of_the_lists(
    postgres: PostgresServer, statements: Counter[str]
) -> None:
    """The rows of a run come with its lease."""
    schema = postgres.empty_schema()
    async with postgres.open_log(schema) as log, Runner(_agent(step, pay), log=log) as runner:
        handle = await runner.start("Do it.", run_id="run")
        (question,) = (await handle.result()).questions
    statements.clear()

    async with postgres.open_log(schema) as log, Inbox(log) as inbox:
        await inbox.approve(question, by="user:ann")
    async with postgres.open_log(schema) as log, Runner(_agent(step, pay), log=log) as runner:
        handle = await runner.open("run")
        await handle.resume()
        assert (await handle.result()).text == "Done."

    assert statements["load_indexed_run"] == 0
    assert statements["append_listed"] == 3
    listed = postgres.query("SELECT status, open_questions FROM listed_runs", schema)
    asked = postgres.query("SELECT status, decided_by FROM listed_actions", schema)
    assert (listed, asked) == ([("COMPLETED", 0)], [("EXECUTED", "user:ann")])


async def test_of_two_starts_of_one_run_one_is_refused(postgres: PostgresServer) -> None:
    schema = postgres.empty_schema()
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(postgres.open_log(schema)) for _ in range(2)]
        runners = [await stack.enter_async_context(Runner(_agent(step), log=log)) for log in logs]
        started = await asyncio.gather(
            *(runner.start("Do it.", run_id="run") for runner in runners), return_exceptions=True
        )
        (handle,) = [each for each in started if isinstance(each, RunHandle)]
        (refused,) = [each for each in started if isinstance(each, (RunClaimedError, ConfigurationError))]

        assert (await handle.result()).text == "Done."
        assert "run" in str(refused)
        assert await logs[0].lease_holders() == {}


async def test_start_that_is_cancelled_keeps_no_lease(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with postgres.open_log(postgres.empty_schema()) as log, Runner(_agent(step), log=log) as runner:
        append_and_acquire = log.append_and_acquire

        def cancel(run_id: str, entries: Sequence[LogEntry]) -> "asyncio.Future[Lease]":
            starting.cancel()
            return append_and_acquire(run_id, entries)

        monkeypatch.setattr(log, "append_and_acquire", cancel)
        starting = asyncio.ensure_future(runner.start("Do it.", run_id="run"))
        with pytest.raises(asyncio.CancelledError):
            await starting

        assert (len(await log.read("run")) > 0, await log.lease_holders()) == (True, {})
        handle = await runner.open("run")
        assert (await handle.result()).text == "Done."
