"""A question is made of the call's arguments, and a secret among them must not get into the log with it."""

import pytest

from interlock import CallbackInteractionProvider, HeadlessInteractionProvider, Question, ToolIntent, ToolRuntime, tool
from tests.support import call

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@tool(risk="execute", resources={"command": "command"})
async def bash(command: str) -> str:
    """Run a command."""
    return "done"


def curl(token: str) -> ToolIntent:
    return call("c1", "bash", command=f"curl -H 'Authorization: token {token}' https://api.example/{token}")


@pytest.mark.parametrize("declared", [{}, {"TOKEN": TOKEN}], ids=["not declared", "declared"])
async def test_a_secret_in_a_command_that_is_asked_about_is_nowhere_in_the_log(declared: dict[str, str]) -> None:
    async with ToolRuntime(tools=[bash], interaction=HeadlessInteractionProvider("wait"), secrets=declared) as runtime:
        [question] = (await runtime.execute([curl(TOKEN)])).questions
        log = await runtime.export()

    assert TOKEN.encode() not in log
    assert question.action_id.encode() in log


async def test_the_person_is_shown_what_would_run_with_its_secret() -> None:
    asked: list[Question] = []
    person = CallbackInteractionProvider(lambda question: asked.append(question) or False)
    async with ToolRuntime(tools=[bash], interaction=person) as runtime:
        await runtime.execute([curl(TOKEN)])

    assert TOKEN in asked[0].arguments["command"]


async def test_a_call_with_a_secret_is_approved_in_the_process_that_asked_and_runs_as_it_was_shown() -> None:
    async with ToolRuntime(tools=[bash], interaction=CallbackInteractionProvider(lambda question: True)) as runtime:
        [observation] = (await runtime.execute([curl(TOKEN)])).observations
        log = await runtime.export()

    assert observation.ok
    assert TOKEN.encode() not in log
