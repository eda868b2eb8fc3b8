"""The adapter for Strands, with the real framework, its session files and a scripted model."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.middleware import ExecuteToolStage
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.types.exceptions import EventLoopException
from strands.vended_interventions.hitl import HumanInTheLoop

import interlock
from interlock import ConfigurationError, Gate, LocalTools, tool_call
from interlock.adapters.strands import Interlocked, answers, interlock_tools, tools
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


class ScriptedModel(Model):
    """Makes the calls of a script, and keeps what it was shown of them."""

    def __init__(self, script: Script = (), **config: Any) -> None:
        self.script = script
        self.config = config
        self.read: dict[str, str] = {}

    def update_config(self, **model_config: Any) -> None:
        self.config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        return self.config

    async def structured_output(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        blocks = [block for message in messages for block in message["content"]]
        for result in (block["toolResult"] for block in blocks if "toolResult" in block):
            self.read[result["toolUseId"]] = json.dumps([result["status"], result["content"]])
        turn = sum(any("toolUse" in block for block in message["content"]) for message in messages)
        yield {"messageStart": {"role": "assistant"}}
        for call in self.script[turn] if turn < len(self.script) else ():
            arguments = call.amount if isinstance(call.amount, dict) else {"amount": call.amount}
            yield {"contentBlockStart": {"start": {"toolUse": {"name": call.tool, "toolUseId": call.call_id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        if turn >= len(self.script):
            yield {"contentBlockDelta": {"delta": {"text": DONE}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn < len(self.script) else "end_turn"}}


class StrandsHarness:
    framework = "strands"
    run_id = f"st:{THREAD}:shop"
    not_applicable: Mapping[str, str] = {}

    def __init__(self, *, sync: bool) -> None:
        self.sync = sync
        self.reference = f"tests.adapters.suite_strands:{'SYNC_HARNESS' if sync else 'HARNESS'}"

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(_agent(gate, script, tools, tools.folder / "sessions"), tools.folder / "sessions", "Go.")

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        copied = _copy(saved)
        agent = _agent(gate, script, tools, copied)
        # Such a response approves in the framework. The state of an agent that is done needs none.
        return await self._run(agent, copied, answers(agent))

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        folder = tools.folder / "sessions"
        return await self._run(_agent(gate, script, tools, folder), folder, None)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        altered = _copy(saved)
        texts = {file: file.read_text() for file in altered.rglob("*.json")}
        changed = {file: text.replace('"amount": 5', f'"amount": {amount}') for file, text in texts.items()}
        assert sum(changed[file] != text for file, text in texts.items()) > 1  # in the message and in the interrupt
        for file, text in changed.items():
            file.write_text(text)
        return str(altered)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await self._run(_nested(gate, tools, tools.folder / "sessions"), tools.folder / "sessions", "Go.")

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        copied = _copy(saved)
        agent = _nested(gate, tools, copied)
        return await self._run(agent, copied, answers(agent))

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        @tool(context=True)
        def look(amount: int, tool_context: ToolContext) -> str:
            """Look, when the user agrees."""
            return f"{tool_context.interrupt('really', reason='Really?')}: {tools.look(amount)}"

        agent = _agent(gate, ((ScriptedCall("c1", "look", 1),),), tools, tools.folder / "sessions", look=look)
        result = await agent.invoke_async("Go.")
        assert (result.stop_reason, [one.reason for one in result.interrupts]) == ("interrupt", ["Really?"])
        assert answers(agent) is None
        response = {"interruptResponse": {"interruptId": result.interrupts[0].id, "response": "yes"}}
        turn = await self._run(agent, tools.folder, [response])
        assert (turn.text, tools.effects) == (DONE, ["look 1"])
        assert "yes: saw 1" in turn.read["c1"]

    async def check_provider_tools(self, gate: Gate) -> None:
        for config in ({"anthropic_tools": [{"type": "web_search"}]}, {"params": {"tools": [{"type": "web_search"}]}}):
            agent = Agent(model=ScriptedModel(**config), plugins=[Interlocked(gate)], callback_handler=None)
            with pytest.raises(ConfigurationError, match="tools"):
                await self._run(agent, Path(), "Go.")

    async def _run(self, agent: Agent, folder: Path, prompt: Any) -> Turn:
        try:
            if self.sync:
                result = await asyncio.to_thread(agent, prompt)
            else:
                result = await agent.invoke_async(prompt)
        except EventLoopException as error:
            raise error.__cause__ or error from None
        text = "" if result.stop_reason == "interrupt" else str(result).strip()
        return Turn(text=text, saved=str(folder), read=agent.model.read)


def _agent(gate: Gate, script: Script, tools: SampleTools, folder: Path | None, **others: Any) -> Agent:
    given = {"look": tool(tools.look), "pay": tool(tools.pay), "meet": tool(tools.meet), **others}
    return Agent(
        agent_id="shop",
        name="shop",
        model=ScriptedModel(script),
        tools=list(given.values()),
        session_manager=folder and FileSessionManager(session_id=THREAD, storage_dir=str(folder)),
        plugins=[Interlocked(gate)],
        callback_handler=None,
    )


def _nested(gate: Gate, tools: SampleTools, folder: Path) -> Agent:
    inner = _agent(gate, ((ScriptedCall("inner", "pay", 5),),), tools, None)
    script = ((ScriptedCall("outer", "delegate", {"input": "Pay 5."}),),)
    return _agent(gate, script, tools, folder, delegate=inner.as_tool(name="delegate"))


def _copy(saved: str) -> Path:
    folder = Path(saved).parent
    copied = folder / f"sessions-{len(list(folder.glob('sessions*')))}"
    shutil.copytree(saved, copied)
    return copied


HARNESS, SYNC_HARNESS = StrandsHarness(sync=False), StrandsHarness(sync=True)


class TestStrands(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS


class TestStrandsSync(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return SYNC_HARNESS


@pytest.fixture
def sample(tmp_path: Path) -> SampleTools:
    return SampleTools(tmp_path)


async def test_an_interrupt_shows_what_is_asked(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        agent = _agent(gate, ((ScriptedCall("c1", "pay", 5),),), sample, tmp_path / "sessions")
        result = await agent.invoke_async("Go.")
        (question,) = await gate.questions(HARNESS.run_id)

    (interrupt,) = result.interrupts
    assert interrupt.reason == {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "prompt": question.prompt,
        "tool": "pay",
        "arguments": {"amount": 5},
        "payload_hash": question.payload_hash,
    }


async def test_a_session_is_needed_before_anything_runs(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        script = ((ScriptedCall("c1", "look", 1),),)
        with pytest.raises(ConfigurationError, match="no run id"):
            await HARNESS._run(_agent(gate, script, sample, None), tmp_path, "Go.")
        assert sample.effects == []
        async with gate.run("ticket-42"):
            await HARNESS._run(_agent(gate, script, sample, None), tmp_path, "Go.")

    assert sample.effects == ["look 1"]


@pytest.mark.parametrize("refused", ["HumanInTheLoop", "middleware behind"])
async def test_what_cannot_be_governed_is_refused(tmp_path: Path, sample: SampleTools, refused: str) -> None:
    async def change(context: Any, next_fn: Any) -> AsyncIterator[Any]:
        async for event in next_fn(context.replace(tool_use={**context.tool_use, "input": {"amount": 90}})):
            yield event

    async with open_gate(tmp_path) as gate:
        agent = Agent(
            model=ScriptedModel(((ScriptedCall("c1", "pay", 5),),)),
            tools=[tool(sample.pay)],
            plugins=[Interlocked(gate)],
            interventions=[HumanInTheLoop()] if refused == "HumanInTheLoop" else [],
            callback_handler=None,
        )
        if refused == "middleware behind":
            agent.add_middleware(ExecuteToolStage, change)
        with pytest.raises(ConfigurationError, match=refused):
            await agent.invoke_async("Go.")

    assert sample.effects == []


async def test_interlock_tools_run_in_an_agent_of_strands(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("tea")
    calls = [ScriptedCall(f"c{at}", "read_file", {"path": path}) for at, path in enumerate(["note.txt", "../x"])]
    async with Gate(tmp_path / "state", workspace=tmp_path) as gate, gate.run("ticket-42"):
        agent = Agent(
            model=ScriptedModel((tuple(calls),)),
            tools=interlock_tools(gate, LocalTools(tmp_path)),
            plugins=[Interlocked(gate)],
            callback_handler=None,
        )
        turn = await HARNESS._run(agent, tmp_path, "Go.")

    assert turn.text == DONE
    assert "tea" in turn.read["c0"]
    assert turn.read["c1"].startswith('["error"')


async def test_tools_of_strands_run_in_an_agent_of_interlock(sample: SampleTools) -> None:
    model = interlock.ScriptedModel([[tool_call("look", amount=1), tool_call("look", amount="x")], DONE])
    agent = interlock.Agent(provider=model, tools=tools([tool(sample.look)], risk="read"))
    async with interlock.Runner(agent) as runner:
        result = await runner.run("Go.")

    assert [one.output for one in result.tool_executions][:1] == ["saw 1"]
    assert sample.effects == ["look 1"]


async def test_the_page_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = ScriptedCall("c1", "refund", {"order": 7, "amount": 20})
    names: dict[str, Any] = {"model": ScriptedModel(((call,),))}
    async for block in run_blocks("docs/adapters/strands.md", names):
        if "stop_reason" in block:
            assert names["result"].stop_reason == "interrupt"
            (question,) = await names["gate"].inbox.pending()
            await names["gate"].inbox.approve(question, by="ada")

    assert str(names["result"]).strip() == DONE
    assert "Refunded 20" in names["model"].read["c1"]
