"""The adapter for LlamaIndex, with the real framework and its mock model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import Field

import interlock
from interlock import ConfigurationError, Gate, LocalTools, tool_call
from interlock.adapters.llama_index import ContinueEvent, interlock_tools, interlocked, pause, resume, tools
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
from tests.adapters.page import run_blocks

# The framework itself reads these attributes of its agents.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.* attribute .*is deprecated:DeprecationWarning", "ignore:.* method is deprecated:DeprecationWarning"
)


class ScriptedModel(MockFunctionCallingLLM):
    """Makes the calls of a script, and keeps what it was shown of them."""

    built_in_tools: list[dict[str, str]] = Field(default_factory=list)
    read: dict[str, str] = Field(default_factory=dict)

    def __init__(self, script: Script = (), **options: Any) -> None:
        super().__init__(is_chat_model=True, response_generator=self._respond, **options)
        self._script = script

    def _respond(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        for message in messages:
            if message.role == MessageRole.TOOL:
                self.read[message.additional_kwargs["tool_call_id"]] = str(message.content)
        turn = sum(any(isinstance(block, ToolCallBlock) for block in message.blocks) for message in messages)
        if turn >= len(self._script):
            return ChatMessage(role="assistant", blocks=[TextBlock(text=DONE)])
        calls = [
            ToolCallBlock(
                tool_call_id=call.call_id,
                tool_name=call.tool,
                tool_kwargs=call.amount if isinstance(call.amount, dict) else {"amount": call.amount},
            )
            for call in self._script[turn]
        ]
        return ChatMessage(role="assistant", blocks=calls)


class LlamaIndexHarness:
    framework = "llama-index"
    reference = "tests.adapters.suite_llama_index:HARNESS"
    run_id = THREAD
    not_applicable: Mapping[str, str] = {
        "test_twenty_calls_run_at_the_same_time": "A workflow of LlamaIndex runs four tool calls at the same time.",
    }

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await _start(gate, _agent(gate, script, tools))

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        return await _resume(gate, _agent(gate, script, tools), saved)  # the events approve everything there

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self.start(gate, script, tools)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        altered = saved
        for depth in range(4):  # JSON in JSON
            quote = "\\" * (2**depth - 1) + '"'
            altered = altered.replace(f"{quote}amount{quote}: 5", f"{quote}amount{quote}: {amount}")
        assert altered != saved
        return altered

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await _start(gate, _nested(gate, tools))

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        return await _resume(gate, _nested(gate, tools), saved)

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        async def look(ctx: Context, amount: int) -> str:
            """Look, when the user agrees."""
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Really?"))
            return tools.look(amount)

        agent = _agent(gate, ((ScriptedCall("c1", "look", 1),),), tools, look=look)
        async with gate.run(THREAD):
            handler = agent.run("Go.", memory=_memory())
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    assert (event.prefix, tools.effects) == ("Really?", [])
                    handler.ctx.send_event(HumanResponseEvent(response="yes"))
            assert str(await handler) == DONE
        assert tools.effects == ["look 1"]

    async def check_provider_tools(self, gate: Gate) -> None:
        model = ScriptedModel(built_in_tools=[{"type": "web_search"}])
        agent = interlocked(FunctionAgent, gate)(tools=[], llm=model, streaming=False)
        with pytest.raises(ConfigurationError, match="built-in tools"):
            await _start(gate, agent)


def _memory(history: Sequence[Any] = ()) -> ChatMemoryBuffer:
    messages = [ChatMessage.model_validate(message) for message in history]
    return ChatMemoryBuffer.from_defaults(messages, token_limit=4000, tokenizer_fn=str.split)


async def _start(gate: Gate, agent: Any) -> Turn:
    memory = _memory()
    async with gate.run(THREAD):
        return await _finish(agent, agent.run("Go.", memory=memory), memory)


async def _resume(gate: Gate, agent: Any, saved: str) -> Turn:
    state = json.loads(saved)
    if state["paused"] is None:
        return Turn(saved=saved)
    memory = _memory(state["history"])
    async with gate.run(THREAD):
        return await _finish(agent, await resume(agent, state["paused"], memory), memory)


async def _finish(agent: Any, handler: Any, memory: ChatMemoryBuffer) -> Turn:
    paused = await pause(handler)
    history = [message.model_dump(mode="json") for message in memory.get_all()]
    saved = json.dumps({"paused": paused, "history": history})
    return Turn(text=str(await handler) if paused is None else "", saved=saved, read=agent.llm.read)


def _agent(gate: Gate, script: Script, tools: SampleTools, **others: Any) -> Any:
    given = {"look": tools.look, "pay": tools.pay, "meet": tools.meet, **others}
    return interlocked(FunctionAgent, gate)(
        name="shop", tools=list(given.values()), llm=ScriptedModel(script), streaming=False, timeout=None
    )


def _nested(gate: Gate, tools: SampleTools) -> Any:
    """Return an agent whose tool keeps the state of another agent in its own."""

    async def delegate(ctx: Context, amount: int) -> str:
        """Let another agent pay."""
        inner = _agent(gate, ((ScriptedCall("inner", "pay", 5),),), tools)
        saved = await ctx.store.get("inner", default=None)
        memory = _memory()
        handler = await resume(inner, saved, memory) if saved else inner.run("Pay.", memory=memory)
        saved = await pause(handler)
        if saved is None:
            return str(await handler)
        await ctx.store.set("inner", saved)
        asked = InputRequiredEvent(prefix="It waits.", payload_hash="inner")
        await ctx.wait_for_event(ContinueEvent, asked, "inner", timeout=None)
        raise AssertionError("it is called again")

    return _agent(gate, ((ScriptedCall("outer", "delegate", 5),),), tools, delegate=delegate)


HARNESS = LlamaIndexHarness()


class TestLlamaIndex(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS


@pytest.fixture
def sample(tmp_path: Path) -> SampleTools:
    return SampleTools(tmp_path)


async def test_an_event_shows_what_is_asked(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate, gate.run(THREAD):
        handler = _agent(gate, ((ScriptedCall("c1", "pay", 5),),), sample).run("Go.", memory=_memory())
        asked = await anext(event async for event in handler.stream_events() if isinstance(event, InputRequiredEvent))
        await handler.cancel_run()
        (question,) = await gate.questions(HARNESS.run_id)

    assert (asked.prefix, asked.action_id) == (question.prompt, question.action_id)
    assert (asked.arguments, asked.payload_hash) == ({"amount": 5}, question.payload_hash)


async def test_a_later_pause_does_not_repeat_an_earlier_call(tmp_path: Path, sample: SampleTools) -> None:
    script = ((ScriptedCall("c1", "pay", 5), ScriptedCall("c2", "look", 1)), (ScriptedCall("c3", "pay", 7),))
    async with open_gate(tmp_path) as gate:
        turn = await HARNESS.start(gate, script, sample)
        for _ in range(2):
            (question,) = await gate.questions(THREAD)
            await gate.inbox.approve(question, by="ada")
            turn = await HARNESS.resume(gate, script, sample, turn.saved)

    assert (turn.text, sample.paid, sample.effects.count("look 1")) == (DONE, [5, 7], 1)


async def test_a_run_has_to_be_named(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        agent = _agent(gate, ((ScriptedCall("c1", "look", 1),),), sample)
        with pytest.raises(ConfigurationError, match="no run id"):
            await agent.run("Go.", memory=_memory())

    assert sample.effects == []


async def test_code_executors_are_refused(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match="CodeActAgent"):
            interlocked(CodeActAgent, gate)
        coder = CodeActAgent(code_execute_fn=sample.look, llm=ScriptedModel())
        workflow = interlocked(AgentWorkflow, gate)(agents=[coder], root_agent=coder.name)
        with pytest.raises(ConfigurationError, match="executes code"):
            await workflow.run("Go.", memory=_memory())


async def test_a_workflow_of_agents_is_governed(tmp_path: Path, sample: SampleTools) -> None:
    """To hand over to another agent needs no approval; what that one does, does."""
    script = (
        (ScriptedCall("c1", "handoff", {"to_agent": "clerk", "reason": "pays"}),),
        (ScriptedCall("c2", "pay", 500),),
    )
    options: dict[str, Any] = {"llm": ScriptedModel(script), "streaming": False}
    desk = FunctionAgent(name="desk", description="Talks.", can_handoff_to=["clerk"], **options)
    clerk = FunctionAgent(name="clerk", description="Pays.", tools=[sample.pay], **options)
    async with open_gate(tmp_path) as gate, gate.run(THREAD):
        workflow = interlocked(AgentWorkflow, gate)(agents=[desk, clerk], root_agent="desk")
        handler = workflow.run("Go.", memory=_memory())
        assert await pause(handler) is None
        assert str(await handler) == DONE

    assert sample.effects == []
    assert "Above the limit." in options["llm"].read["c2"]


async def test_interlock_tools_run_in_an_agent_of_llama_index(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("tea")
    calls = [ScriptedCall(f"c{at}", "read_file", {"path": path}) for at, path in enumerate(["note.txt", "../x"])]
    async with Gate(tmp_path / "state", workspace=tmp_path) as gate:
        given = interlock_tools(gate, LocalTools(tmp_path))
        turn = await _start(
            gate,
            interlocked(FunctionAgent, gate)(tools=given, llm=ScriptedModel((tuple(calls),)), streaming=False),
        )

    assert turn.text == DONE
    assert "tea" in turn.read["c0"]
    assert "outside" in turn.read["c1"]


async def test_tools_of_llama_index_run_in_an_agent_of_interlock(sample: SampleTools) -> None:
    model = interlock.ScriptedModel([[tool_call("look", amount=1), tool_call("look", amount="x")], DONE])
    agent = interlock.Agent(provider=model, tools=tools([FunctionTool.from_defaults(sample.look)], risk="read"))
    async with interlock.Runner(agent) as runner:
        result = await runner.run("Go.")

    assert [one.output for one in result.tool_executions][:1] == ["saw 1"]
    assert sample.effects == ["look 1"]


async def test_the_page_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = ScriptedCall("c1", "refund", {"order": 7, "amount": 20})
    names: dict[str, Any] = {"llm": ScriptedModel(((call,),)), "memory": _memory()}
    async for block in run_blocks("docs/adapters/llama_index.md", names):
        if "write_text" in block:
            assert names["saved"] is not None
            (question,) = await names["gate"].inbox.pending()
            await names["gate"].inbox.approve(question, by="ada")

    assert str(names["result"]) == DONE
    assert "Refunded 20" in names["llm"].read["c1"]
