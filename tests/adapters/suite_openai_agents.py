"""OpenAI Agents behind a gate, with its own scripted model."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, WebSearchTool, function_tool, handoff, set_tracing_disabled
from agents._tool_invocation import tool_invocation_identity
from agents.exceptions import UserError
from agents.mcp import MCPServer
from agents.sandbox import SandboxAgent
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from interlock import Agent as InterlockAgent
from interlock import ConfigurationError, Gate, LocalTools, RunPausedError
from interlock import Runner as InterlockRunner
from interlock.adapters.openai_agents import answered, interlock_tools, interlocked, tools
from interlock.domain.event import CallObserved
from interlock.testing import ScriptedModel as InterlockModel
from interlock.testing import tool_call
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
from tests.adapters.page import check_example, run_blocks
from tests.gate.support import events

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


def governed(gate: Gate, *steps: Any, **options: Any) -> Agent[Any]:
    return interlocked(Agent(name="shop", model=ScriptedModel([*steps, [assistant_message(DONE)]]), **options), gate)


def call(name: str, call_id: str = "c1", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


async def approve_all(gate: Gate, **fields: Any) -> None:
    for question in await gate.inbox.pending():
        await gate.inbox.approve(question, by="ada", **fields)


def outputs(result: Any) -> dict[str, str]:
    seen = Seen()
    seen.keep(result.to_input_list())
    return seen


async def test_without_a_run_id_nothing_runs(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate(risk={"look": "read"}) as gate:
        agent = governed(gate, [call("look", amount=1)], tools=[function_tool(sample.look)])
        with pytest.raises(Exception, match="no run id"):
            await Runner.run(agent, "Go.")

    assert sample.effects == []


async def test_a_tool_with_a_second_approval_is_refused(tmp_path: Path) -> None:
    pay = function_tool(SampleTools(tmp_path).pay, needs_approval=True)
    async with Gate() as gate, gate.run(THREAD):
        with pytest.raises(ConfigurationError, match="needs_approval"):
            await Runner.run(governed(gate, tools=[pay]), "Go.")
        with pytest.raises(ConfigurationError, match="needs_approval"):
            tools([pay])


async def test_agents_that_are_not_governed_are_refused(tmp_path: Path) -> None:
    inner = Agent(name="inner", tools=[function_tool(SampleTools(tmp_path).pay)])
    async with Gate() as gate, gate.run(THREAD):
        with pytest.raises(ConfigurationError, match="tool 'ask'"):
            await Runner.run(governed(gate, tools=[inner.as_tool("ask", "Ask.")]), "Go.")
        with pytest.raises(ConfigurationError, match="handoff 'inner'"):
            await Runner.run(governed(gate, handoffs=[handoff(inner)]), "Go.")
        with pytest.raises(ConfigurationError, match="SandboxAgent"):
            interlocked(SandboxAgent(name="box"), gate)


@pytest.mark.parametrize("as_object", [False, True])
async def test_agents_that_take_over_are_governed(tmp_path: Path, as_object: bool) -> None:
    sample = SampleTools(tmp_path)
    model = ScriptedModel([[call("pay", "c2", amount=5)], [assistant_message(DONE)]])
    billing = Agent(name="billing", model=model, tools=[function_tool(sample.pay)])
    async with Gate() as gate, gate.run(THREAD):
        target = handoff(interlocked(billing, gate)) if as_object else billing
        agent = governed(gate, [call("transfer_to_billing")], handoffs=[target])
        result = await Runner.run(agent, "Go.")
        assert sample.paid == []
        (question,) = await gate.questions(THREAD)
        await approve_all(gate)
        result = await Runner.run(agent, await answered(gate, result.to_state()))

    assert (result.final_output, sample.paid, question.agent) == (DONE, [5], "billing")


async def test_a_copy_of_a_governed_agent_is_governed(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate, gate.run(THREAD):
        agent = governed(gate, [call("pay", amount=5)]).clone(tools=[function_tool(sample.pay)])
        result = await Runner.run(agent, "Go.")

    assert (len(result.interruptions), sample.paid) == (1, [])


class Server(MCPServer):
    """A server with one tool, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    name = "shop"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_: Any) -> list[Any]:
        return [MCPTool(name="pay", inputSchema={"type": "object", "properties": {"amount": {"type": "integer"}}})]

    async def call_tool(self, tool_name: str, arguments: Any, *_: Any) -> CallToolResult:
        self.called.append(arguments)
        return CallToolResult(content=[TextContent(type="text", text="paid")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_mcp_servers_are_governed() -> None:
    server = Server()
    async with Gate() as gate, gate.run(THREAD):
        agent = governed(gate, [call("pay", amount=5)], mcp_servers=[server])
        result = await Runner.run(agent, "Go.")
        assert server.called == []
        await approve_all(gate)
        result = await Runner.run(agent, await answered(gate, result.to_state()))

    assert (result.final_output, server.called) == (DONE, [{"amount": 5}])


async def test_a_tool_that_raises_is_recorded_as_failed() -> None:
    @function_tool
    def look(amount: int) -> str:
        """Look at an amount."""
        raise LookupError("There is nothing.")

    async with Gate(risk={"look": "read"}) as gate, gate.run(THREAD):
        result = await Runner.run(governed(gate, [call("look", amount=1)], tools=[look]), "Go.")
        facts = [event.fact for event in await events(gate, THREAD)]

    assert result.final_output == DONE
    assert [fact.observation.ok for fact in facts if isinstance(fact, CallObserved)] == [False]
    assert "There is nothing." in outputs(result)["c1"]


async def test_arguments_that_are_not_json_never_run(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate, gate.run(THREAD):
        agent = governed(gate, [function_call("pay", "{amount", call_id="c1")], tools=[function_tool(sample.pay)])
        result = await Runner.run(agent, "Go.")
        result = await Runner.run(agent, await answered(gate, result.to_state()))

    assert (result.final_output, sample.paid) == (DONE, [])


async def test_streamed_runs_are_governed(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate, gate.run(THREAD):
        agent = governed(gate, [call("pay", amount=5)], tools=[function_tool(sample.pay)])
        result = Runner.run_streamed(agent, "Go.")
        async for _ in result.stream_events():
            pass
        assert (len(result.interruptions), sample.paid) == (1, [])
        await approve_all(gate)
        result = await Runner.run(agent, await answered(gate, result.to_state()))

    assert (result.final_output, sample.paid) == (DONE, [5])


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that `run_sync` uses; it closes none."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


def test_agents_run_without_an_event_loop(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    sample = SampleTools(tmp_path)
    gate = Gate(tmp_path / "state", risk={"look": "read"})
    for _ in range(2):
        agent = governed(gate, [call("look", amount=1)], tools=[function_tool(sample.look)])
        with gate.run(THREAD):
            assert Runner.run_sync(agent, "Go.").final_output == DONE
    gate.close_sync()

    assert sample.effects == ["look 1"]


async def test_local_tools_work_inside_the_framework(tmp_path: Path) -> None:
    (tmp_path / "tea.txt").write_text("tea\n")
    turn = [
        call("read_file", "c1", path="tea.txt"),
        call("read_file", "c2", path="../key.txt"),
        call("write_file", "c3", path="new.txt", content="coffee"),
    ]
    async with Gate(workspace=tmp_path) as gate, gate.run(THREAD):
        agent = governed(gate, turn, tools=interlock_tools(gate, LocalTools(tmp_path)))
        result = await Runner.run(agent, "Go.")
        assert not (tmp_path / "new.txt").exists()
        assert [question.agent for question in await gate.questions(THREAD)] == ["shop"]
        await approve_all(gate)
        result = await Runner.run(agent, await answered(gate, result.to_state()))

    read = outputs(result)
    assert (result.final_output, (tmp_path / "new.txt").read_text()) == (DONE, "coffee")
    assert "tea" in read["c1"]
    assert "denied" in read["c2"]


async def test_local_tools_refuse_an_agent_without_the_gate(tmp_path: Path) -> None:
    async with Gate(workspace=tmp_path) as gate, gate.run(THREAD):
        model = ScriptedModel([[call("read_file", path="tea.txt")]])
        agent = Agent(name="shop", model=model, tools=interlock_tools(gate, LocalTools(tmp_path)))
        with pytest.raises(UserError, match="interlocked"):
            await Runner.run(agent, "Go.")


async def test_tools_of_the_framework_work_in_an_agent_of_ours() -> None:
    @function_tool
    def add(day: date, days: int) -> str:
        """Add days to a date."""
        return f"{day.day + days}"

    model = InterlockModel([tool_call("add", day="2027-01-02", days=1), tool_call("add", day=3, days=1), "Done."])
    async with InterlockRunner(InterlockAgent(provider=model, tools=tools([add], risk="read"))) as runner:
        result = await runner.run("Go.")

    first, second = result.tool_executions
    assert (first.output, second.success) == ("3", False)


async def test_the_page_of_the_adapter_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel([[call("refund", order=7, amount=12.5)], [assistant_message(DONE)]])
    names: dict[str, Any] = {"MODEL": model}
    async for code in run_blocks("docs/adapters/openai_agents.md", names, '"gpt-5"'):
        if "write_text" in code:
            await approve_all(names["gate"])

    assert capsys.readouterr().out == f"{DONE}\n"
    assert outputs(names["result"])["c1"] == "Refunded 12.5 for order 7."


async def test_the_example_resumes_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await check_example("openai_agents", tmp_path, capsys)
