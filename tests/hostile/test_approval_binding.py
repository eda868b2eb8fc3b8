"""What a yes is bound to, where a call is written so that the binding might miss it."""

import asyncio
from pathlib import Path

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    PolicyFiles,
    Question,
    ToolRuntime,
    example_event,
    load_policy,
    tool,
)
from interlock.domain.decision import Decision, Verdict
from interlock.domain.tool import CallContext, JsonObject, ToolDefinition
from interlock.interaction.terminal_dialog import render_details
from tests.patience import HANG_SECONDS
from tests.support import call

MANY_WORDS = "echo " + " ".join(f"w{at}" for at in range(70)) + "; sh deploy.sh"
SCRIPTS = [
    ("cd sub && sh deploy.sh", "sub/deploy.sh"),
    ("bash -c 'cd sub; sh deploy.sh'", "sub/deploy.sh"),
    (MANY_WORDS, "deploy.sh"),
]


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bash(ran: list[str]) -> ToolDefinition:
    def run(command: str) -> str:
        ran.append(command)
        return "done"

    return tool(run, name="bash", risk="execute", resources={"command": "command"})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("deploy.sh", "sub/deploy.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("echo good\n")
    (tmp_path / "user.yaml").write_text("version: 1\n")
    return tmp_path


@pytest.mark.parametrize(("command", "file"), SCRIPTS)
async def test_a_script_that_changed_while_the_question_waited_does_not_run(
    workspace: Path, bash: ToolDefinition, ran: list[str], command: str, file: str
) -> None:
    policy = PolicyFiles(user=workspace / "user.yaml")
    waiting = HeadlessInteractionProvider("wait")
    runtime = ToolRuntime(tools=[bash], policy=policy, workspace=str(workspace), interaction=waiting)
    [question] = (await runtime.execute([call("c1", "bash", command=command)])).questions

    (workspace / file).write_text("echo bad\n")
    await runtime.decide(question.action_id, approved=True, payload_hash=question.payload_hash)
    result = await runtime.resume()

    assert ran == []
    assert any(file in change.what for asked in result.questions for change in asked.changes)


@pytest.mark.parametrize(("command", "file"), SCRIPTS)
async def test_a_yes_for_the_run_does_not_cover_a_script_that_changed(
    workspace: Path, bash: ToolDefinition, command: str, file: str
) -> None:
    asked: list[Question] = []

    def person(question: Question) -> Answer:
        asked.append(question)
        return Answer(approved=True, scope="run")

    policy = PolicyFiles(user=workspace / "user.yaml")
    provider = CallbackInteractionProvider(person)
    runtime = ToolRuntime(tools=[bash], policy=policy, workspace=str(workspace), interaction=provider)
    await runtime.execute([call("c1", "bash", command=command)])
    (workspace / file).write_text("echo bad\n")
    await runtime.execute([call("c2", "bash", command=command)])

    assert len(asked) == 2


@pytest.mark.parametrize("command", ["cd build && rm -rf .", "cd build; make install"])
def test_the_rule_to_keep_does_not_reach_into_other_folders(tmp_path: Path, command: str) -> None:
    (tmp_path / "user.yaml").write_text("version: 1\n")
    policy = PolicyFiles(user=tmp_path / "user.yaml")
    situation = CallContext(run_id="run_1", workspace=str(tmp_path))

    def judged(text: str) -> Decision:
        return policy.evaluate(example_event("bash", {"command": text}, situation))

    if suggested := judged(command).suggested_rule:
        policy.keep(suggested)

    assert judged(command.partition("&&")[2].strip() or command.partition(";")[2].strip()).verdict == "ask"


def test_an_allowed_command_is_not_allowed_in_a_folder_that_the_rule_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "user.yaml").write_text("version: 1\nallow: [bash(npm test)]\n")
    policy = load_policy(tmp_path / "user.yaml")
    command = "cd node_modules/other && npm test"
    event = example_event("bash", {"command": command}, CallContext(run_id="run_1", workspace=str(tmp_path)))
    assert policy.evaluate(event).verdict == "ask"


async def test_a_tool_that_wants_to_be_asked_each_time_is_asked_each_time() -> None:
    asked: list[Question] = []

    def opinion(_arguments: JsonObject, _situation: CallContext) -> Decision:
        return Decision(verdict=Verdict.ASK, reason="Money moves.", scope="once")

    @tool(risk="network", authorize=opinion)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    def person(question: Question) -> Answer:
        asked.append(question)
        return Answer(approved=True, scope="once" if question.scope == "once" else "run")

    runtime = ToolRuntime(tools=[pay], interaction=CallbackInteractionProvider(person))
    async with asyncio.timeout(HANG_SECONDS):
        for number in range(2):
            await runtime.execute([call(f"c{number}", "pay", amount=5)])

    assert len(asked) == 2
    assert "Money moves." in asked[0].reason


async def test_who_asks_why_is_told_that_nothing_holds_the_call_back(workspace: Path, bash: ToolDefinition) -> None:
    waiting = HeadlessInteractionProvider("wait")
    runtime = ToolRuntime(tools=[bash], workspace=str(workspace), interaction=waiting)
    [question] = (await runtime.execute([call("c1", "bash", command="make")])).questions
    told = " ".join(line.text for line in render_details(question, 100))
    assert "everything that this process may do" in told
