"""The adapter of LangChain, with its real agents and a scripted model."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from interlock import Agent, ConfigurationError, Gate, LocalTools, Runner
from interlock.adapters.langchain import (
    Interlocked,
    interlock_tools,
    interlocked_subagents,
    thread_config,
    tools,
)
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call
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
from tests.adapters.page import check_example
from tests.docs.pages import compiled, python_blocks, text_of
from tests.gate.support import answer, events, until_asked
from tests.patience import HANG_SECONDS

_INPUT = {"messages": [("user", "Go.")]}
_CONFIG = {"configurable": {"thread_id": THREAD}, "max_concurrency": 20}
_OUTER: Script = ((ScriptedCall("outer", "delegate", 5),),)
_INNER: Script = ((ScriptedCall("inner", "pay", 5),),)


class FakeModel(BaseChatModel):
    """Makes the calls of its script, turn by turn."""

    script: Sequence[Sequence[tuple[str, str, dict[str, Any]]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "FakeModel":
        return self

    def _generate(self, messages: list[Any], *args: Any, **options: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        calls = self.script[turn] if turn < len(self.script) else ()
        made = [{"id": call_id, "name": name, "args": arguments} for call_id, name, arguments in calls]
        message = AIMessage("" if made else DONE, tool_calls=made)
        return ChatResult(generations=[ChatGeneration(message=message)])


def model(script: Script) -> FakeModel:
    return FakeModel(script=[[(call.call_id, call.tool, {"amount": call.amount}) for call in turn] for turn in script])


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


def _ask(*calls: tuple[str, str, dict[str, Any]], then: Sequence[Any] = ()) -> FakeModel:
    return FakeModel(script=[calls, *then])


def _pay_tool(paid: list[int]) -> StructuredTool:
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount} with sesame"

    return StructuredTool.from_function(pay)


def _read(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.status, str(one.content)) for one in result["messages"] if isinstance(one, ToolMessage)]


def test_own_tools_run_in_an_agent_of_langchain(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with Gate(tmp_path / "state", workspace=tmp_path) as gate:
        made = interlock_tools(gate, LocalTools(tmp_path))
        asked = _ask(("c1", "read_file", {"path": "notes.txt"}), ("c2", "read_file", {"path": "../secret"}))
        agent = create_agent(asked, made, middleware=[Interlocked(gate)], checkpointer=InMemorySaver())
        read = _read(agent.invoke(_INPUT, _CONFIG))

        with pytest.raises(ConfigurationError, match="Interlocked"):
            create_agent(asked, made).invoke(_INPUT)

    assert "hello" in read[0][1]
    assert [status for status, _ in read] == ["success", "error"]


async def test_tools_of_langchain_run_in_an_agent_of_interlock() -> None:
    paid: list[int] = []
    calls = (tool_call("pay", amount=3), tool_call("pay", amount="x"))
    scripted = ScriptedModel([ScriptedTurn(calls=calls), ScriptedTurn(text="ok")])
    async with Runner(Agent(provider=scripted, tools=tools([_pay_tool(paid)], risk="read"))) as runner:
        result = await runner.run("go")

    assert paid == [3]
    assert [one.success for one in result.tool_executions] == [True, False]


def test_a_call_without_a_thread_is_refused(tmp_path: Path) -> None:
    paid: list[int] = []
    with Gate(tmp_path, risk={"pay": "read"}) as gate:
        asked = _ask(("c1", "pay", {"amount": 1}))
        agent = create_agent(asked, [_pay_tool(paid)], middleware=[Interlocked(gate)])
        with pytest.raises(ConfigurationError, match=r"gate\.run"), pytest.warns(UserWarning, match="checkpointer"):
            agent.invoke(_INPUT)

    assert paid == []


def test_an_agent_without_calls_needs_no_thread(tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        result = create_agent(_ask(), [_pay_tool([])], middleware=[Interlocked(gate)]).invoke(_INPUT)

    assert result["messages"][-1].text == DONE


def test_an_older_checkpoint_repeats_nothing(tmp_path: Path) -> None:
    paid: list[int] = []
    with Gate(tmp_path) as gate:
        asked = _ask(("c1", "pay", {"amount": 1}))
        agent = create_agent(asked, [_pay_tool(paid)], middleware=[Interlocked(gate)], checkpointer=InMemorySaver())
        chunks = list(agent.stream(_INPUT, _CONFIG, stream_mode="updates"))
        older = agent.get_state(_CONFIG).config
        asyncio.run(answer(gate, HARNESS.run_id))
        read = [_read(agent.invoke(None, config)) for config in (_CONFIG, older, older)]

    assert "__interrupt__" in chunks[-1]
    assert (paid, read) == ([1], [[("success", "paid 1 with sesame")]] * 3)


def test_a_second_approval_is_refused(tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        second = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
        agent = create_agent(_ask(), [_pay_tool([])], middleware=[Interlocked(gate), second])
        with pytest.raises(ConfigurationError, match="HumanInTheLoop"):
            agent.invoke(_INPUT, _CONFIG)


async def test_without_a_checkpointer_the_call_waits(tmp_path: Path) -> None:
    paid: list[int] = []

    async def answer_later(gate: Gate) -> list[int]:
        await until_asked(gate, HARNESS.run_id)
        before = list(paid)
        await answer(gate, HARNESS.run_id)
        return before

    async with Gate(tmp_path) as gate:
        agent = create_agent(_ask(("c1", "pay", {"amount": 1})), [_pay_tool(paid)], middleware=[Interlocked(gate)])
        with pytest.warns(UserWarning, match="checkpointer"):
            result, before = await asyncio.gather(agent.ainvoke(_INPUT, _CONFIG), answer_later(gate))

    assert (before, paid, result["messages"][-1].text) == ([], [1], DONE)


def test_secrets_do_not_reach_the_model(tmp_path: Path) -> None:
    with Gate(tmp_path, risk={"pay": "read"}, secrets={"word": "sesame"}) as gate:
        asked = _ask(("c1", "pay", {"amount": 1}))
        agent = create_agent(asked, [_pay_tool([])], middleware=[Interlocked(gate)], checkpointer=InMemorySaver())
        ((status, text),) = _read(agent.invoke(_INPUT, _CONFIG))

    assert (status, "paid 1" in text, "sesame" in text) == ("success", True, False)


def test_the_run_is_free_when_the_agent_ends(tmp_path: Path) -> None:
    with Gate(tmp_path, risk={"pay": "read"}) as gate, Gate(tmp_path, risk={"pay": "read"}) as other:
        for at, one in enumerate((gate, other), start=1):
            asked = _ask(("c1", "pay", {"amount": at}))
            agent = create_agent(asked, [_pay_tool([])], middleware=[Interlocked(one)], checkpointer=InMemorySaver())
            assert _read(agent.invoke(_INPUT, _CONFIG))[0][0] == "success"


def test_a_tool_node_without_an_agent_passes_the_gate(tmp_path: Path) -> None:
    paid: list[int] = []
    sample = SampleTools(tmp_path)
    with Gate(tmp_path / "state", risk={"look": "read"}) as gate:
        interlocked = Interlocked(gate)
        made = [_pay_tool(paid), StructuredTool.from_function(sample.look)]
        node = ToolNode(made, wrap_tool_call=interlocked.wrap_tool_call, awrap_tool_call=interlocked.awrap_tool_call)
        graph = StateGraph(MessagesState).add_node("tools", node).add_edge("__start__", "tools")
        compiled = graph.compile(checkpointer=InMemorySaver())
        calls = [{"id": f"c-{name}", "name": name, "args": {"amount": 1}} for name in ("look", "pay")]
        result = compiled.invoke({"messages": [AIMessage("", tool_calls=calls)]}, _CONFIG)
        asked = result["__interrupt__"][0].value
        before = list(paid)
        asyncio.run(answer(gate, HARNESS.run_id))
        read = _read(compiled.invoke(None, _CONFIG))

    assert (asked["tool"], asked["arguments"]) == ("pay", {"amount": 1})
    assert asked["action_id"]
    assert asked["payload_hash"]
    assert (before, paid, sample.effects) == ([], [1], ["look 1"])
    assert read == [("success", "saw 1"), ("success", "paid 1 with sesame")]


def test_a_failed_tool_is_read_by_the_model(tmp_path: Path) -> None:
    def pay(amount: int) -> str:
        """Pay an amount."""
        raise OSError("no money left")

    with Gate(tmp_path, risk={"pay": "read"}) as gate:
        asked, failing = _ask(("c1", "pay", {"amount": 1})), StructuredTool.from_function(pay)
        agent = create_agent(asked, [failing], middleware=[Interlocked(gate)], checkpointer=InMemorySaver())
        ((status, text),) = _read(agent.invoke(_INPUT, _CONFIG))

    assert (status, "no money left" in text) == ("error", True)


def test_a_graph_inside_a_tool_hands_over(tmp_path: Path) -> None:
    def leave(state: MessagesState) -> Command:
        return Command(graph=Command.PARENT, goto="desk")

    def greet(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("At the desk.")]}

    inner = StateGraph(MessagesState).add_node("leave", leave).add_edge("__start__", "leave").compile()

    def hand_over(amount: int) -> str:
        """Hand over to the desk."""
        return str(inner.invoke({"messages": []}))

    with Gate(tmp_path, risk={"hand_over": "read"}) as gate:
        node = ToolNode([StructuredTool.from_function(hand_over)], wrap_tool_call=Interlocked(gate).wrap_tool_call)
        graph = StateGraph(MessagesState).add_node("tools", node).add_node("desk", greet).add_edge("__start__", "tools")
        call = {"id": "c1", "name": "hand_over", "args": {"amount": 1}}
        compiled = graph.compile(checkpointer=InMemorySaver())
        result = compiled.invoke({"messages": [AIMessage("", tool_calls=[call])]}, _CONFIG)
        (record,) = [
            event.fact for event in asyncio.run(events(gate, HARNESS.run_id)) if event.type == "tool.observation"
        ]

    assert result["messages"][-1].text == "At the desk."
    assert record.observation.ok


@pytest.mark.parametrize("subagent", ["general-purpose", "payer"])
def test_subagents_of_a_deep_agent_ask(tmp_path: Path, subagent: str) -> None:
    paid: list[int] = []
    inner = _ask(("inner", "pay", {"amount": 5}))
    payer = {"name": "payer", "description": "Pays.", "system_prompt": "Pay.", "model": inner}
    task = {"description": "Pay 5.", "subagent_type": subagent}
    with Gate(tmp_path, risk={"task": "read"}) as gate:
        specs = interlocked_subagents(gate, [payer])
        specs[0]["model"] = inner
        agent = create_deep_agent(
            _ask(("outer", "task", task)),
            [_pay_tool(paid)],
            middleware=[Interlocked(gate)],
            subagents=specs,
            checkpointer=InMemorySaver(),
        )
        result = agent.invoke(_INPUT, _CONFIG)
        (asked,) = asyncio.run(gate.inbox.pending())
        before = (list(paid), len(result["__interrupt__"]), thread_config(asked.run_id))
        asyncio.run(gate.inbox.approve(asked, by="ada"))
        result = agent.invoke(None, _CONFIG)

    assert before == ([], 1, {"configurable": {"thread_id": THREAD}})
    assert (paid, result["messages"][-1].text) == ([5], DONE)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_subagent_past_the_gate_fails_loudly(tmp_path: Path, *, is_async: bool) -> None:
    paid: list[int] = []
    inner = _ask(("inner", "pay", {"amount": 5}))
    runnable = create_agent(inner, [_pay_tool(paid)])
    task = {"description": "Pay 5.", "subagent_type": "payer"}
    async with Gate(tmp_path, risk={"task": "read"}) as gate:
        agent = create_deep_agent(
            _ask(("outer", "task", task)),
            middleware=[Interlocked(gate)],
            subagents=interlocked_subagents(gate, [{"name": "payer", "description": "Pays.", "runnable": runnable}]),
            checkpointer=InMemorySaver(),
        )
        with pytest.raises(ConfigurationError, match="past the gate"):
            await (agent.ainvoke(_INPUT, _CONFIG) if is_async else asyncio.to_thread(agent.invoke, _INPUT, _CONFIG))

    assert paid == []


def test_a_subagent_on_another_server_is_refused(tmp_path: Path) -> None:
    remote = {"name": "far", "description": "Far away.", "graph_id": "g", "url": "http://localhost:1"}
    with Gate(tmp_path) as gate, pytest.raises(ConfigurationError, match="another server"):
        interlocked_subagents(gate, [remote])


@pytest.mark.parametrize("thread", ["a.0123456789ab", "ana@shop/7", "ü~", "x.y"])
def test_a_run_names_its_thread(tmp_path: Path, thread: str) -> None:
    with Gate(tmp_path, risk={"pay": "read"}) as gate:
        asked = _ask(("c1", "pay", {"amount": 1}))
        agent = create_agent(asked, [_pay_tool([])], middleware=[Interlocked(gate)], checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": thread}}
        agent.invoke(_INPUT, config)
        (run,) = asyncio.run(gate.log.list_runs())

    assert thread_config(run.first.run_id) == config
    with pytest.raises(ConfigurationError, match="thread"):
        thread_config("pai:x")


def test_the_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"MODEL": _ask(("c1", "refund", {"order": 7, "amount": 5.0}))}
    page = "docs/adapters/langchain.md"
    for block in python_blocks(text_of(page)):
        if "agent.invoke(None, config" in block.code:
            asyncio.run(answer(names["gate"], "lg:ticket-42"))
        exec(compiled(block.code.replace('"openai:gpt-5"', "MODEL"), page, block.line), names)  # noqa: S102 - our page
        if "continue_threads" in block.code:
            asyncio.run(_continue_by_itself(names))
    names["saver"].conn.close()

    assert _read(names["result"]) == [("success", "Refunded 5.0 for order 7.")]
    assert DONE in capsys.readouterr().out


async def _continue_by_itself(names: dict[str, Any]) -> None:
    """Start another thread, and wait until the loop of the page has continued it after the answer."""
    agent, loop = names["agent"], asyncio.get_running_loop()
    continued: asyncio.Future[dict[str, Any]] = loop.create_future()

    def invoke(given: None, config: Any) -> None:
        result = agent.invoke(given, config)
        if config["configurable"]["thread_id"] == "ticket-43":
            loop.call_soon_threadsafe(continued.set_result, result)

    names["agent"] = SimpleNamespace(invoke=invoke)
    await asyncio.to_thread(agent.invoke, _INPUT, {"configurable": {"thread_id": "ticket-43"}})
    continuing = asyncio.create_task(names["continue_threads"](0))
    await answer(names["gate"], "lg:ticket-43")
    result = await asyncio.wait_for(continued, HANG_SECONDS)
    continuing.cancel()
    assert _read(result) == [("success", "Refunded 5.0 for order 7.")]


async def test_the_example_resumes_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await check_example("langchain", tmp_path, capsys)
