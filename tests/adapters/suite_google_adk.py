"""The adapter for Google ADK, with the real framework, its session store and a scripted model."""

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
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import google_search
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import Field

from interlock import ConfigurationError, Gate
from interlock.adapters.google_adk import Interlocked, confirmations
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

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")

_CONFIRM = "adk_request_confirmation"


class ScriptedModel(BaseLlm):
    """Makes the calls of a script, and keeps what it was shown of them."""

    script: Any
    read: dict[str, str] = Field(default_factory=dict)

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        for part in parts:
            if part.function_response:
                self.read[part.function_response.id] = json.dumps(part.function_response.response, default=str)
        turn = sum(any(part.function_call for part in content.parts or ()) for content in llm_request.contents)
        if turn < len(self.script):
            calls = [
                types.FunctionCall(id=call.call_id, name=call.tool, args={_argument(call.tool): call.amount})
                for call in self.script[turn]
            ]
            answer = [types.Part(function_call=call) for call in calls]
        else:
            answer = [types.Part(text=DONE)]
        yield LlmResponse(content=types.Content(role="model", parts=answer))


def _argument(tool: str) -> str:
    return "request" if tool == "delegate" else "amount"


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
    ) -> Turn:
        sessions = SqliteSessionService(str(file))
        app = App(
            name="shop",
            root_agent=agent,
            plugins=[Interlocked(gate)],
            resumability_config=ResumabilityConfig(is_resumable=True) if crashed else None,
        )
        runner = Runner(app=app, session_service=sessions)
        where = {"app_name": "shop", "user_id": "ana", "session_id": THREAD}
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
            async for event in runner.run_async(user_id="ana", session_id=THREAD, **options):
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
    script = ((ScriptedCall("outer", "delegate", "Pay 5."),),)
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
