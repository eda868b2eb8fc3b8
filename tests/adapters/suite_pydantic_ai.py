"""pydantic-ai behind a gate, with its own function model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability, NativeTool
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool

from interlock import ConfigurationError, Gate
from interlock.adapters.pydantic_ai import Interlocked, answers
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


def scripted_model(script: Script) -> FunctionModel:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        at = sum(isinstance(message, ModelResponse) for message in messages)
        if at >= len(script):
            return ModelResponse(parts=[TextPart(DONE)])
        return ModelResponse(
            parts=[ToolCallPart(call.tool, {"amount": call.amount}, call.call_id) for call in script[at]]
        )

    return FunctionModel(respond)


class SaveHistory(AbstractCapability[Any]):
    """Save the conversation before each call: what a program does that wants to survive a crash."""

    def __init__(self, file: Path) -> None:
        self.file = file

    async def before_tool_execute(self, ctx: RunContext[Any], *, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.file.write_bytes(ModelMessagesTypeAdapter.dump_json(ctx.messages))
        return args


def build_agent(gate: Gate, script: Script, tools: SampleTools, **options: Any) -> Agent[None, Any]:
    return Agent(
        scripted_model(script),
        name="shop",
        tools=[tools.look, tools.pay, tools.meet],
        output_type=[str, DeferredToolRequests],
        capabilities=[Interlocked(gate), SaveHistory(tools.folder / "history.json")],
        **options,
    )


def describe(result: Any) -> Turn:
    messages: Sequence[ModelMessage] = result.all_messages()
    parts = [part for message in messages if message.kind == "request" for part in message.parts]
    read = {part.tool_call_id: str(part.content) for part in parts if getattr(part, "tool_call_id", None)}
    paused = isinstance(result.output, DeferredToolRequests)
    return Turn(text="" if paused else result.output, saved=result.all_messages_json().decode(), read=read)


class PydanticAI:
    framework = "pydantic-ai"
    reference = "tests.adapters.suite_pydantic_ai:HARNESS"
    run_id = f"pai:{THREAD}"
    not_applicable: Mapping[str, str] = {}

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return describe(await build_agent(gate, script, tools).run("Go.", conversation_id=THREAD))

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        history = ModelMessagesTypeAdapter.validate_json(saved)
        # `answers` says yes to every open call: the framework's own approval is all that it gives.
        agent = build_agent(gate, script, tools)
        return describe(await agent.run(message_history=history, deferred_tool_results=answers(history)))

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self.resume(gate, script, tools, (tools.folder / "history.json").read_text())

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        history = json.loads(saved)
        for message in history:
            for part in message["parts"]:
                if part["part_kind"] == "tool-call" and part["tool_call_id"] == call_id:
                    part["args"] = {"amount": amount}
        return json.dumps(history)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return describe(await self._outer(gate, tools).run("Go.", conversation_id=THREAD))

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        history = ModelMessagesTypeAdapter.validate_json(saved)
        agent = self._outer(gate, tools)
        return describe(await agent.run(message_history=history, deferred_tool_results=answers(history)))

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        tried: list[int] = []

        def look(amount: int) -> str:
            """Look at an amount."""
            tried.append(amount)
            if amount == 1:
                raise ModelRetry("Try 2.")
            raise ApprovalRequired(metadata={"of": "the tool"})

        script = ((ScriptedCall("c1", "look", 1),), (ScriptedCall("c2", "look", 2),))
        agent = Agent(
            scripted_model(script),
            tools=[look],
            output_type=[str, DeferredToolRequests],
            capabilities=[Interlocked(gate)],
        )

        result = await agent.run("Go.", conversation_id=THREAD)

        assert tried == [1, 2]
        assert result.output.metadata == {"c2": {"of": "the tool"}}
        assert "Try 2." in describe(result).read["c1"]

    async def check_provider_tools(self, gate: Gate) -> None:
        agent = Agent(TestModel(), capabilities=[Interlocked(gate), NativeTool(WebSearchTool())])
        with pytest.raises(ConfigurationError, match="web_search"):
            await agent.run("Go.", conversation_id=THREAD)

    def _outer(self, gate: Gate, tools: SampleTools) -> Agent[None, Any]:
        kept = tools.folder / "inner.json"

        async def delegate(amount: int) -> str:
            """Ask another agent."""
            inner = build_agent(gate, ((ScriptedCall("inner", "pay", amount),),), tools)
            history = ModelMessagesTypeAdapter.validate_json(kept.read_bytes()) if kept.exists() else []
            result = await inner.run(
                None if history else "Go.", message_history=history, deferred_tool_results=answers(history)
            )
            kept.write_bytes(result.all_messages_json())
            if isinstance(result.output, DeferredToolRequests):
                raise ApprovalRequired
            return result.output

        return Agent(
            scripted_model(((ScriptedCall("outer", "delegate", 5),),)),
            tools=[delegate],
            output_type=[str, DeferredToolRequests],
            capabilities=[Interlocked(gate)],
        )


HARNESS = PydanticAI()


class TestPydanticAI(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS
