"""OpenAI Agents behind a gate, with its own scripted model."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from agents import Agent, Runner, RunState, WebSearchTool, function_tool, set_tracing_disabled
from agents._tool_invocation import tool_invocation_identity
from agents.exceptions import UserError
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from interlock import ConfigurationError, Gate, RunPausedError
from interlock.adapters.openai_agents import answered, interlocked
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

set_tracing_disabled(True)


class Seen(dict[str, str]):
    """What the model was shown of each call."""

    def keep(self, items: Any) -> None:
        for item in items:
            if isinstance(item, dict) and item.get("type") == "function_call_output":
                self[item["call_id"]] = str(item["output"])


def scripted_model(script: Script, seen: Seen, saved: str = "") -> ScriptedModel:
    def answer(call: Any) -> list[Any]:
        seen.keep(call.input)
        return [assistant_message(DONE)]

    begun = len(json.loads(saved)["model_responses"]) if saved else 0
    turns = [
        [function_call(call.tool, {"amount": call.amount}, call_id=call.call_id) for call in turn] for turn in script
    ]
    return ScriptedModel([*turns[begun:], ModelStep.respond(answer)])


def describe(result: Any, seen: Seen) -> Turn:
    if result.interruptions:
        return Turn(saved=result.to_state().to_string(), read=seen)
    return Turn(text=result.final_output, read=seen)


class OpenAIAgents:
    framework = "openai-agents"
    reference = "tests.adapters.suite_openai_agents:HARNESS"
    run_id = THREAD
    not_applicable: Mapping[str, str] = {
        "test_a_reused_call_id_is_another_call": "The framework ends the run when a model uses a call id again.",
    }

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        seen = Seen()
        agent = self._agent(gate, script, tools, seen)
        async with gate.run(THREAD):
            return describe(await Runner.run(agent, "Go."), seen)

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        seen = Seen()
        return await self._continue(gate, self._agent(gate, script, tools, seen, saved), saved, seen, approve)

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self.start(gate, script, tools)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        # The framework keeps a digest of each call, without a key: a forger computes it, too.
        old, new = (function_call("pay", {"amount": number}, call_id=call_id) for number in (5, amount))
        texts = ((item.arguments, tool_invocation_identity(item)[2]) for item in (old, new))
        for before, after in zip(*texts, strict=True):
            saved = saved.replace(json.dumps(before), json.dumps(after))
        return saved

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        seen = Seen()
        async with gate.run(THREAD):
            return describe(await Runner.run(self._outer(gate, tools, seen), "Go."), seen)

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        seen = Seen()
        return await self._continue(gate, self._outer(gate, tools, seen, saved), saved, seen)

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        @function_tool(failure_error_function=None)
        def look(amount: int) -> str:
            """Look at an amount."""
            raise LookupError("The program has to stop.")

        model = scripted_model(((ScriptedCall("c1", "look", 1),),), Seen())
        agent = interlocked(Agent(name="shop", model=model, tools=[look]), gate)
        async with gate.run(THREAD):
            with pytest.raises(Exception, match="has to stop"):
                await Runner.run(agent, "Go.")

    async def check_provider_tools(self, gate: Gate) -> None:
        agent = interlocked(Agent(name="shop", model=ScriptedModel([]), tools=[WebSearchTool()]), gate)
        async with gate.run(THREAD):
            with pytest.raises(ConfigurationError, match="WebSearchTool"):
                await Runner.run(agent, "Go.")

    def _agent(self, gate: Gate, script: Script, tools: SampleTools, seen: Seen, saved: str = "") -> Agent[Any]:
        made = [function_tool(tools.look), function_tool(tools.pay), function_tool(tools.meet)]
        return interlocked(Agent(name="shop", model=scripted_model(script, seen, saved), tools=made), gate)

    def _outer(self, gate: Gate, tools: SampleTools, seen: Seen, saved: str = "") -> Agent[Any]:
        inner_calls = [] if saved else [[function_call("pay", {"amount": 5}, call_id="inner")]]
        inner = Agent(
            name="inner",
            model=ScriptedModel([*inner_calls, [assistant_message("Paid.")]]),
            tools=[function_tool(tools.pay)],
        )
        delegate = interlocked(inner, gate).as_tool("delegate", "Ask another agent.")
        outer_calls = [] if saved else [[function_call("delegate", {"input": "Go."}, call_id="outer")]]
        model = ScriptedModel([*outer_calls, [assistant_message(DONE)]])
        return interlocked(Agent(name="outer", model=model, tools=[delegate]), gate)

    async def _continue(self, gate: Gate, agent: Agent[Any], saved: str, seen: Seen, approve: bool = False) -> Turn:
        state = await RunState.from_string(agent, saved)
        async with gate.run(THREAD):
            if approve:
                for item in state.get_interruptions():
                    state.approve(item)
            else:
                await answered(gate, state)
            try:
                return describe(await Runner.run(agent, state), seen)
            except UserError as error:
                if not isinstance(error.__cause__, RunPausedError):
                    raise
                return Turn(saved=saved, read=seen)


HARNESS = OpenAIAgents()


class TestOpenAIAgents(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS
