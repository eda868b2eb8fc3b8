"""What a run costs a log in Postgres, counted: every append is one statement, with the rows of lists in it."""

from collections import Counter

import pytest

from interlock import Agent, Inbox, Rule, RulePolicy, Runner, tool
from interlock.domain.tool import ToolDefinition
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
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
    """Two of them change what lists show: the first and the last."""
    async with postgres.open_log(postgres.empty_schema()) as log, Runner(_agent(*[step] * 5), log=log) as runner:
        await runner.run("Do it.")

    assert statements == {"acquire": 1, "append_one": 11, "append_listed": 2, "release": 1, "has_commands": 1}


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
