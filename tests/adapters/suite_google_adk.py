"""The adapter for Google ADK, with the real framework, its session store and a scripted model."""

import asyncio
import json
import re
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, FunctionTool, google_search
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import Field
from typer.testing import CliRunner

import interlock
from interlock import ConfigurationError, Gate, LocalTools, tool_call
from interlock.adapters.google_adk import Interlocked, confirmations, interlock_tools, tools
from interlock.cli.main import app
from interlock.testing.adapters import (
    DONE,
    THREAD,
    AdapterConformance,
    AdapterHarness,
    SampleTools,
    Script,
    ScriptedCall,
    Turn,
)
from interlock.testing.adapters.harness import open_gate
from tests.patience import HANG_SECONDS, eventually_read

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")

_CONFIRM = "adk_request_confirmation"


class ScriptedModel(BaseLlm):
    """Makes the calls of a script, and keeps what it was shown of them."""

    script: Any
    read: dict[str, str] = Field(default_factory=dict)
    requests: int = 0

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        self.requests += 1
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        for part in parts:
            if part.function_response:
                self.read[part.function_response.id] = json.dumps(part.function_response.response, default=str)
        turn = sum(any(part.function_call for part in content.parts or ()) for content in llm_request.contents)
        if turn < len(self.script):
            calls = [
                types.FunctionCall(
                    id=call.call_id,
                    name=call.tool,
                    args=call.amount if isinstance(call.amount, dict) else {"amount": call.amount},
                )
                for call in self.script[turn]
            ]
            answer = [types.Part(function_call=call) for call in calls]
        else:
            answer = [types.Part(text=DONE)]
        yield LlmResponse(content=types.Content(role="model", parts=answer))


class AdkHarness:
    framework = "google-adk"
    reference = "tests.adapters.suite_google_adk:HARNESS"
    run_id = f"adk:shop:ana:{THREAD}"
    not_applicable: Mapping[str, str] = {}

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, _agent(script, tools), tools.folder / "sessions.db", message="Go.")

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        return await self._run(gate, _agent(script, tools), _copy(saved), approve=approve)

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, _agent(script, tools), tools.folder / "sessions.db", crashed=True)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        altered = _copy(saved)
        with closing(sqlite3.connect(altered)) as database, database:
            for event, text in database.execute("SELECT id, event_data FROM events").fetchall():
                changed = re.sub(r'("amount": ?)5', rf"\g<1>{amount}", text)  # in the call and in the confirmation
                database.execute("UPDATE events SET event_data = ? WHERE id = ?", (changed, event))
        return str(altered)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await self._run(gate, _nested(tools), tools.folder / "sessions.db", message="Go.")

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        return await self._run(gate, _nested(tools), _copy(saved))

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        def look(amount: int, tool_context: ToolContext) -> dict[str, Any]:
            """Look, after the tool itself has asked."""
            if tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="Really?")
                tool_context.actions.skip_summarization = True
                return {"error": "not confirmed"}
            return {"seen": tools.look(amount)}

        agent = _agent(((ScriptedCall("c1", "look", 1),),), tools, look=look)
        turn = await self._run(gate, agent, tools.folder / "sessions.db", message="Go.")
        assert (turn.text, tools.effects) == ("", [])
        turn = await self._run(gate, agent, _copy(turn.saved), approve=True)
        assert (turn.text, tools.effects) == (DONE, ["look 1"])

    async def check_provider_tools(self, gate: Gate) -> None:
        agent = LlmAgent(name="shop", model=ScriptedModel(model="gemini-2.5-flash", script=()), tools=[google_search])
        with pytest.raises(ConfigurationError, match="google_search"):
            await self._run(gate, agent, Path(":memory:"), message="Go.")

    async def _run(
        self,
        gate: Gate,
        agent: LlmAgent,
        file: Path,
        *,
        message: str = "",
        approve: bool = False,
        crashed: bool = False,
        user: str = "ana",
        session_id: str = THREAD,
    ) -> Turn:
        sessions = SqliteSessionService(str(file))
        app = App(
            name="shop",
            root_agent=agent,
            plugins=[Interlocked(gate)],
            resumability_config=ResumabilityConfig(is_resumable=True) if crashed else None,
        )
        runner = Runner(app=app, session_service=sessions)
        where = {"app_name": "shop", "user_id": user, "session_id": session_id}
        options: dict[str, Any] = {}
        if message:
            await sessions.create_session(**where)
            options["new_message"] = types.UserContent(message)
        else:
            session = await sessions.get_session(**where)
            assert session is not None
            if crashed:
                options["invocation_id"] = session.events[-1].invocation_id
            elif approve:
                options["new_message"] = _confirm_all(session)
            else:
                options["new_message"] = await confirmations(gate, session)
                if options["new_message"] is None:
                    return Turn(saved=str(file), read=agent.model.read)
        text = ""
        try:
            async for event in runner.run_async(user_id=user, session_id=session_id, **options):
                if event.author == agent.name and event.content:
                    text = "".join(part.text or "" for part in event.content.parts or ()) or text
        except RuntimeError as error:  # ADK wraps what its plugins raise
            raise error.__cause__ or error from None
        finally:
            await sessions.close()
        return Turn(text=text, saved=str(file), read=agent.model.read)


def _agent(script: Script, tools: SampleTools, **others: Any) -> LlmAgent:
    given = {"look": tools.look, "pay": tools.pay, "meet": tools.meet, **others}
    return LlmAgent(name="shop", model=ScriptedModel(model="fake", script=script), tools=list(given.values()))


def _nested(tools: SampleTools) -> LlmAgent:
    inner = LlmAgent(
        name="delegate",
        description="Pays.",
        mode="single_turn",
        model=ScriptedModel(model="fake", script=((ScriptedCall("inner", "pay", 5),),)),
        tools=[tools.pay],
    )
    script = ((ScriptedCall("outer", "delegate", {"request": "Pay 5."}),),)
    return LlmAgent(name="shop", model=ScriptedModel(model="fake", script=script), sub_agents=[inner])


def _copy(saved: str) -> Path:
    folder = Path(saved).parent
    copied = folder / f"sessions-{len(list(folder.glob('sessions*.db')))}.db"
    shutil.copy(saved, copied)
    return copied


def _confirm_all(session: Any) -> types.Content:
    calls = [call for event in session.events for call in event.get_function_calls() if call.name == _CONFIRM]
    responses = [types.FunctionResponse(id=call.id, name=_CONFIRM, response={"confirmed": True}) for call in calls]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in responses])


HARNESS = AdkHarness()


class TestGoogleAdk(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS


@pytest.fixture
def sample(tmp_path: Path) -> SampleTools:
    return SampleTools(tmp_path)


async def _run_once(gate: Gate, agent: LlmAgent, folder: Path) -> Turn:
    return await HARNESS._run(gate, agent, folder / "sessions.db", message="Go.")


async def test_callbacks_of_the_agent_are_called_before_the_gate(tmp_path: Path, sample: SampleTools) -> None:
    """The gate decides about the arguments as the callbacks leave them."""
    agent = _agent(((ScriptedCall("c1", "pay", 5), ScriptedCall("c2", "look", 1)),), sample)

    def change(tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, Any] | None:
        if tool.name == "look":
            return {"result": "cached"}
        args["amount"] = 500
        return None

    agent.before_tool_callback = change
    agent.after_tool_callback = lambda tool, args, tool_context, tool_response: {"after": tool_response}
    async with open_gate(tmp_path) as gate:
        turn = await _run_once(gate, agent, tmp_path)

    assert (turn.text, sample.effects) == (DONE, [])
    assert "Above the limit." in turn.read["c1"]
    assert json.loads(turn.read["c2"]) == {"after": {"result": "cached"}}


@pytest.mark.parametrize("refused", ["code executor", "without plugins", "require_confirmation"])
async def test_what_cannot_be_governed_is_refused(tmp_path: Path, sample: SampleTools, refused: str) -> None:
    agent = _agent(((ScriptedCall("c1", "pay", 5),),), sample)
    inner = LlmAgent(name="pay", model=ScriptedModel(model="fake", script=()))
    match refused:
        case "code executor":
            agent.code_executor = UnsafeLocalCodeExecutor()
        case "without plugins":
            agent.tools = [AgentTool(inner, include_plugins=False)]
        case _:
            agent.tools = [FunctionTool(sample.pay, require_confirmation=True)]
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match=refused):
            await _run_once(gate, agent, tmp_path)
    assert sample.effects == []


@pytest.mark.filterwarnings("ignore:The `plugins` argument:DeprecationWarning")
async def test_a_question_inside_an_agent_tool_waits_there(tmp_path: Path, sample: SampleTools) -> None:
    inner = _agent(((ScriptedCall("inner", "pay", 5),),), sample).model_copy(update={"name": "delegate"})
    model = ScriptedModel(model="fake", script=((ScriptedCall("outer", "delegate", {"request": "Pay 5."}),),))
    agent = LlmAgent(name="shop", model=model, tools=[AgentTool(inner)])
    async with open_gate(tmp_path) as gate:
        run = asyncio.create_task(_run_once(gate, agent, tmp_path))

        async def has_asked() -> bool:
            assert not run.done(), run.result()
            return bool(await gate.inbox.pending())

        await eventually_read(has_asked)
        (asked,) = await gate.inbox.pending()
        await gate.inbox.approve(asked, by="ada")
        turn = await asyncio.wait_for(run, HANG_SECONDS)

    assert (turn.text, sample.paid) == (DONE, [5])


async def test_tools_that_steer_adk_need_no_approval(tmp_path: Path, sample: SampleTools) -> None:
    clerk = _agent((), sample).model_copy(update={"name": "clerk"})
    model = ScriptedModel(model="fake", script=((ScriptedCall("c1", "transfer_to_agent", {"agent_name": "clerk"}),),))
    agent = LlmAgent(name="shop", model=model, sub_agents=[clerk])
    async with open_gate(tmp_path) as gate:
        await _run_once(gate, agent, tmp_path)
        assert await gate.inbox.pending() == []

    assert clerk.model.requests == 1


async def test_a_tool_that_returns_nothing_runs_once(tmp_path: Path, sample: SampleTools) -> None:
    def look(amount: int) -> None:
        """Look, and say nothing."""
        sample.look(amount)

    agent = _agent(((ScriptedCall("c1", "look", 1),),), sample, look=look)
    async with open_gate(tmp_path) as gate:
        turn = await _run_once(gate, agent, tmp_path)

    assert (turn.text, sample.effects, json.loads(turn.read["c1"])) == (DONE, ["look 1"], {"result": None})


async def test_sessions_of_other_users_are_other_runs(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        for at, (user, session) in enumerate([("ana", "b:c"), ("ana:b", "c")]):
            agent = _agent(((ScriptedCall("c1", "pay", 5),),), sample)
            await HARNESS._run(gate, agent, tmp_path / f"{at}.db", message="Go.", user=user, session_id=session)
        runs = sorted(question.run_id for question in await gate.inbox.pending())

    assert runs == ["adk:shop:ana%3Ab:c", "adk:shop:ana:b%3Ac"]


async def test_interlock_tools_run_in_an_agent_of_adk(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("tea")
    model = ScriptedModel(
        model="fake",
        script=(
            (ScriptedCall("c1", "read_file", {"path": "note.txt"}), ScriptedCall("c2", "read_file", {"path": "../x"})),
        ),
    )
    async with Gate(tmp_path / "state", workspace=tmp_path) as gate:
        agent = LlmAgent(name="shop", model=model, tools=interlock_tools(gate, LocalTools(tmp_path)))
        turn = await _run_once(gate, agent, tmp_path)

    assert turn.text == DONE
    assert "tea" in turn.read["c1"]
    assert "error" in turn.read["c2"]


async def test_tools_of_adk_run_in_an_agent_of_interlock(sample: SampleTools) -> None:
    model = interlock.ScriptedModel([[tool_call("look", amount=1), tool_call("look", amount="x")], DONE])
    agent = interlock.Agent(provider=model, tools=tools([FunctionTool(sample.look)], risk="read"))
    async with interlock.Runner(agent) as runner:
        result = await runner.run("Go.")

    assert [one.output for one in result.tool_executions][:1] == ["saw 1"]
    assert sample.effects == ["look 1"]


def test_the_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "adapters" / "google_adk.md"
    start, resume = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    script = ((ScriptedCall("c1", "find_order", {"number": 7}), ScriptedCall("c2", "refund", {"number": 7})),)
    names: dict[str, Any] = {"MODEL": ScriptedModel(model="fake", script=script)}
    exec(start.replace('model="gemini-2.5-flash"', "model=MODEL"), names)  # noqa: S102 - the page
    assert "refunded" not in capsys.readouterr().out

    exec(resume, names)  # noqa: S102 - too early: nothing happens
    log = ("--log", "state/runs.db")
    listed = CliRunner().invoke(app, ["approvals", "list", "--json", *log])
    answered = CliRunner().invoke(app, ["approvals", "approve", json.loads(listed.stdout)[0]["action_id"], *log])
    assert answered.exit_code == 0, answered.output
    exec(resume, names)  # noqa: S102

    assert capsys.readouterr().out == f"refunded 7\nshop ['{DONE}']\n"
