"""The adapter of LangChain, with its real agents and a scripted model."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from interlock import ConfigurationError, Gate
from interlock.adapters.langchain import Interlocked
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

_INPUT = {"messages": [("user", "Go.")]}
_CONFIG = {"configurable": {"thread_id": THREAD}, "max_concurrency": 20}
_OUTER: Script = ((ScriptedCall("outer", "delegate", 5),),)
_INNER: Script = ((ScriptedCall("inner", "pay", 5),),)


class ScriptedModel(BaseChatModel):
    """Makes the calls of its script, turn by turn."""

    script: Sequence[Sequence[tuple[str, str, dict[str, Any]]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "ScriptedModel":
        return self

    def _generate(self, messages: list[Any], *args: Any, **options: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        calls = self.script[turn] if turn < len(self.script) else ()
        made = [{"id": call_id, "name": name, "args": arguments} for call_id, name, arguments in calls]
        message = AIMessage("" if made else DONE, tool_calls=made)
        return ChatResult(generations=[ChatGeneration(message=message)])


def model(script: Script) -> ScriptedModel:
    return ScriptedModel(
        script=[[(call.call_id, call.tool, {"amount": call.amount}) for call in turn] for turn in script]
    )


class LangChain:
    """The database of the checkpointer is the saved state: who resumes it works on a copy."""

    framework = "langchain"
    reference = "tests.adapters.suite_langchain:HARNESS"
    run_id = f"lg:{THREAD}"
    not_applicable: Mapping[str, str] = {}

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, self._tools(tools), tools.folder / "graph.db", _INPUT)

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        return await self._run(gate, script, self._tools(tools), _copy(saved), _approve if approve else None)

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, self._tools(tools), tools.folder / "graph.db", None)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        path = _copy(saved)
        with SqliteSaver.from_conn_string(str(path)) as saver:
            agent = create_agent(model(()), self._tools(tools), checkpointer=saver)
            message = agent.get_state(_CONFIG).values["messages"][-1]
            (call,) = [call for call in message.tool_calls if call["id"] == call_id]
            call["args"] = {"amount": amount}
            agent.update_state(_CONFIG, {"messages": [message]}, as_node="model")
        return str(path)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await self._run(gate, _OUTER, [self._delegate(gate, tools)], tools.folder / "graph.db", _INPUT)

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        return await self._run(gate, _OUTER, [self._delegate(gate, tools)], _copy(saved), None)

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        def look(amount: int) -> Command:
            """Ask for a number, and end the graph."""
            pin = interrupt("Which number?")
            said = ToolMessage(f"heard {pin}", tool_call_id="c1")
            return Command(update={"messages": [said]}, goto="__end__")

        script = ((ScriptedCall("c1", "look", 1),),)
        made = [StructuredTool.from_function(look)]
        turn = await self._run(gate, script, made, tools.folder / "graph.db", _INPUT)
        assert (turn.text, turn.read) == ("", {})
        turn = await self._run(gate, script, made, tools.folder / "graph.db", Command(resume=7))
        assert turn.read["c1"] == "heard 7"

    async def check_provider_tools(self, gate: Gate) -> None:
        search = {"type": "web_search_20250305", "name": "web_search"}
        agent = create_agent(model(()), [search], middleware=[Interlocked(gate)])
        with pytest.raises(ConfigurationError, match="web_search_20250305"):
            await asyncio.to_thread(agent.invoke, _INPUT, _CONFIG)

    def _tools(self, tools: SampleTools) -> list[StructuredTool]:
        meet = StructuredTool.from_function(tools.meet_in_threads, name="meet")
        return [StructuredTool.from_function(tools.look), StructuredTool.from_function(tools.pay), meet]

    def _delegate(self, gate: Gate, tools: SampleTools) -> StructuredTool:
        def delegate(amount: int) -> str:
            """Let another agent pay."""
            agent = create_agent(model(_INNER), self._tools(tools), middleware=[Interlocked(gate)])
            return agent.invoke(_INPUT)["messages"][-1].text

        return StructuredTool.from_function(delegate)

    async def _run(self, gate: Gate, script: Script, tools: Any, path: Path, given: Any) -> Turn:
        return await asyncio.to_thread(self._run_sync, gate, script, tools, path, given)

    def _run_sync(self, gate: Gate, script: Script, tools: Any, path: Path, given: Any) -> Turn:
        with SqliteSaver.from_conn_string(str(path)) as saver:
            agent = create_agent(model(script), tools, middleware=[Interlocked(gate)], checkpointer=saver)
            given = given(agent.get_state(_CONFIG)) if callable(given) else given
            return _turn(agent.invoke(given, _CONFIG, durability="sync"), path)


class AsyncLangChain(LangChain):
    reference = "tests.adapters.suite_langchain:ASYNC_HARNESS"

    def _tools(self, tools: SampleTools) -> list[StructuredTool]:
        meet = StructuredTool.from_function(coroutine=tools.meet)
        return [*super()._tools(tools)[:2], meet]

    def _delegate(self, gate: Gate, tools: SampleTools) -> StructuredTool:
        async def delegate(amount: int) -> str:
            """Let another agent pay."""
            agent = create_agent(model(_INNER), self._tools(tools), middleware=[Interlocked(gate)])
            return (await agent.ainvoke(_INPUT))["messages"][-1].text

        return StructuredTool.from_function(coroutine=delegate)

    async def _run(self, gate: Gate, script: Script, tools: Any, path: Path, given: Any) -> Turn:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            agent = create_agent(model(script), tools, middleware=[Interlocked(gate)], checkpointer=saver)
            given = given(await agent.aget_state(_CONFIG)) if callable(given) else given
            return _turn(await agent.ainvoke(given, _CONFIG, durability="sync"), path)


def _approve(state: Any) -> Command:
    return Command(resume={one.id: {"approved": True} for one in state.interrupts})


def _turn(result: dict[str, Any], path: Path) -> Turn:
    read = {one.tool_call_id: str(one.content) for one in result["messages"] if isinstance(one, ToolMessage)}
    text = "" if "__interrupt__" in result else result["messages"][-1].text
    return Turn(text=text, saved=str(path), read=read)


_COPIES = count(1)


def _copy(saved: str) -> Path:
    return Path(shutil.copy(saved, Path(saved).with_name(f"copy-{next(_COPIES)}.db")))


HARNESS = LangChain()
ASYNC_HARNESS = AsyncLangChain()


class TestLangChain(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS


class TestAsyncLangChain(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return ASYNC_HARNESS
