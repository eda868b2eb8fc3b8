"""pydantic-ai behind a gate, with its own function model."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    Tool,
    ToolApproved,
)
from pydantic_ai.capabilities import AbstractCapability, NativeTool
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool

from interlock import Agent as InterlockAgent
from interlock import ConfigurationError, Gate, LocalTools, Rule, RulePolicy, Runner
from interlock.adapters.pydantic_ai import Interlocked, answers, interlock_tools, tools
from interlock.testing import ScriptedModel, tool_call
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


def function_model(*turns: Sequence[ToolCallPart]) -> FunctionModel:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        at = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=list(turns[at]) if at < len(turns) else [TextPart(DONE)])

    return FunctionModel(respond)


def scripted_model(script: Script) -> FunctionModel:
    return function_model(
        *([ToolCallPart(call.tool, {"amount": call.amount}, call.call_id) for call in turn] for turn in script)
    )


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


PAY: Script = ((ScriptedCall("c1", "pay", 5),),)


async def approve_all(gate: Gate, **fields: Any) -> None:
    for question in await gate.inbox.pending():
        await gate.inbox.approve(question, by="ada", **fields)


def governed(gate: Gate, *turns: Sequence[ToolCallPart], **options: Any) -> Agent[None, Any]:
    options.setdefault("capabilities", [Interlocked(gate)])
    return Agent(function_model(*turns), output_type=[str, DeferredToolRequests], **options)


async def continue_run(agent: Agent[None, Any], result: Any) -> Any:
    history = result.all_messages()
    return await agent.run(message_history=history, deferred_tool_results=answers(history))


async def test_without_a_conversation_id_nothing_runs(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate(risk={"look": "read"}) as gate:
        agent = build_agent(gate, ((ScriptedCall("c1", "look", 1),),), sample)
        with pytest.raises(ConfigurationError, match="no run id"):
            await agent.run("Go.")
        assert sample.effects == []

        async with gate.run("ticket-42"):
            await agent.run("Go.")
        assert len(await gate.log.read("ticket-42")) > 0


async def test_the_pause_says_what_is_asked(tmp_path: Path) -> None:
    async with Gate() as gate:
        result = await build_agent(gate, PAY, SampleTools(tmp_path)).run("Go.", conversation_id=THREAD)
        (question,) = await gate.inbox.pending()

    assert result.output.metadata["c1"] == {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "prompt": question.prompt,
        "tool": "pay",
        "arguments": {"amount": 5},
        "payload_hash": question.payload_hash,
    }


async def test_arguments_given_with_an_approval_are_refused(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate:
        agent = build_agent(gate, PAY, sample)
        result = await agent.run("Go.", conversation_id=THREAD)
        await approve_all(gate)
        other = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"amount": 90})})
        await agent.run(message_history=result.all_messages(), deferred_tool_results=other)

    assert sample.paid == []


async def test_an_output_type_without_pauses_is_an_error(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate:
        agent = Agent(scripted_model(PAY), tools=[sample.pay], capabilities=[Interlocked(gate)])
        with pytest.raises(UserError, match="DeferredToolRequests"):
            await agent.run("Go.", conversation_id=THREAD)

    assert sample.paid == []


async def test_a_tool_with_a_second_approval_is_refused(tmp_path: Path) -> None:
    async with Gate() as gate:
        agent = governed(gate, tools=[Tool(SampleTools(tmp_path).pay, requires_approval=True)])
        with pytest.raises(ConfigurationError, match="requires_approval"):
            await agent.run("Go.", conversation_id=THREAD)


class Booking(BaseModel):
    day: date
    nights: int = 1


async def test_edited_arguments_arrive_with_their_types() -> None:
    booked: list[Booking] = []

    def book(booking: Booking) -> str:
        """Book a room."""
        booked.append(booking)
        return "booked"

    async with Gate() as gate:
        agent = governed(gate, [ToolCallPart("book", {"day": "2027-01-02", "nights": "2"}, "c1")], tools=[book])
        result = await agent.run("Go.", conversation_id=THREAD)
        (question,) = await gate.inbox.pending()
        await approve_all(gate, arguments={"day": "2027-02-03"})
        await continue_run(agent, result)

    assert question.arguments == {"day": "2027-01-02", "nights": 2}
    assert booked == [Booking(day=date(2027, 2, 3))]


class RaiseAmount(AbstractCapability[Any]):
    async def before_tool_execute(self, ctx: RunContext[Any], *, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"amount": 500}


async def test_changes_of_other_capabilities_are_judged(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    deny = Rule(id="limit", verdict="deny", tools="pay", when=lambda event: event.arguments["amount"] > 100)
    async with Gate(policy=RulePolicy([deny])) as gate:
        capabilities = [Interlocked(gate), RaiseAmount()]
        agent = governed(
            gate, [ToolCallPart("pay", {"amount": 5}, "c1")], tools=[sample.pay], capabilities=capabilities
        )
        result = await agent.run("Go.", conversation_id=THREAD)

    assert (result.output, sample.paid) == (DONE, [])


async def test_tools_given_to_one_run_are_governed(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate:
        agent = governed(gate, [ToolCallPart("pay", {"amount": 5}, "c1")])
        result = await agent.run("Go.", conversation_id=THREAD, toolsets=[FunctionToolset([sample.pay])])

    assert (type(result.output), sample.paid) == (DeferredToolRequests, [])


async def test_tools_found_by_a_search_are_governed(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    search = ToolCallPart("search_tools", {"queries": ["pay"]}, "c1")
    async with Gate() as gate:
        pay = Tool(sample.pay, defer_loading=True)
        agent = governed(gate, [search], [ToolCallPart("pay", {"amount": 5}, "c2")], tools=[pay])
        result = await agent.run("Go.", conversation_id=THREAD)

    assert (type(result.output), sample.paid) == (DeferredToolRequests, [])


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
    gate = Gate(risk={"look": "read"})
    agent = build_agent(gate, ((ScriptedCall("c1", "look", 1),),), sample)

    outputs = [agent.run_sync("Go.", conversation_id=f"{at}").output for at in range(2)]
    loop.run_until_complete(gate.close())

    assert (outputs, sample.effects) == ([DONE, DONE], ["look 1", "look 1"])


async def test_streamed_runs_are_governed(tmp_path: Path) -> None:
    sample = SampleTools(tmp_path)
    async with Gate() as gate:
        agent = build_agent(gate, PAY, sample)
        async with agent.run_stream("Go.", conversation_id=THREAD, model=TestModel(call_tools=["pay"])) as stream:
            output = await stream.get_output()

    assert (type(output), sample.paid) == (DeferredToolRequests, [])


async def test_local_tools_work_inside_the_framework(tmp_path: Path) -> None:
    (tmp_path / "tea.txt").write_text("tea\n")
    turn = [
        ToolCallPart("read_file", {"path": "tea.txt"}, "c1"),
        ToolCallPart("read_file", {"path": "../key.txt"}, "c2"),
        ToolCallPart("write_file", {"path": "new.txt", "content": "coffee"}, "c3"),
    ]
    async with Gate(workspace=tmp_path) as gate:
        agent = governed(gate, turn, toolsets=[interlock_tools(gate, LocalTools(tmp_path))])
        result = await agent.run("Go.", conversation_id=THREAD)
        assert not (tmp_path / "new.txt").exists()
        await approve_all(gate)
        result = await continue_run(agent, result)

    read = describe(result).read
    assert (result.output, (tmp_path / "new.txt").read_text()) == (DONE, "coffee")
    assert "tea" in read["c1"]
    assert "denied" in read["c2"]


async def test_tools_of_the_framework_work_in_an_agent_of_ours() -> None:
    def add(ctx: RunContext[int], day: date, days: int = 1) -> str:
        """Add days to a date."""
        return f"{day.day + days + ctx.deps}"

    model = ScriptedModel([tool_call("add", day="2027-01-02"), tool_call("add", day=3), "Done."])
    async with Runner(InterlockAgent(provider=model, tools=tools([add], deps=10, risk="read"))) as runner:
        result = await runner.run("Go.")

    first, second = result.tool_executions
    assert (first.output, second.success) == ("13", False)


async def test_the_page_of_the_adapter_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = function_model([ToolCallPart("refund", {"order": 7, "amount": 12.5}, "c1")])
    names: dict[str, Any] = {"MODEL": model}
    async for code in run_blocks("docs/adapters/pydantic_ai.md", names):
        if "write_bytes" in code:
            await approve_all(names["gate"])

    assert capsys.readouterr().out == f"{DONE}\n"
    assert describe(names["result"]).read["c1"] == "Refunded 12.5 for order 7."


async def test_the_example_resumes_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await check_example("pydantic_ai", tmp_path, capsys)
