"""A loop of one's own behind a gate: the smallest program that the suite for adapters accepts. Its state is JSON."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from interlock import Gate, Settled, ToolIntent
from interlock.testing.adapters import DONE, THREAD, SampleTools, Script, ScriptedCall, Turn
from tests.gate.support import SCHEMA

Execute = Callable[[dict[str, Any]], Awaitable[Any]]


class Paused(Exception):
    """A call inside a call waits for a person."""


class PlainLoop:
    framework = "plain"
    reference = "tests.gate.plain_loop:HARNESS"
    run_id = THREAD
    not_applicable: Mapping[str, str] = {
        "test_tools_that_the_provider_runs_are_not_silent": "A loop of one's own has no provider.",
    }

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._loop(gate, script, tools, 0, {})

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        state = json.loads(saved)
        turns = [tuple(ScriptedCall(*call) for call in turn) for turn in state["script"]]
        return await self._loop(gate, tuple(turns), tools, state["turn"], state["read"])

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self.start(gate, script, tools)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        state = json.loads(saved)
        for turn in state["script"]:
            for call in turn:
                call[2] = amount if call[0] == call_id else call[2]
        return json.dumps(state)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await self.start(gate, ((ScriptedCall("outer", "delegate", 5),),), tools)

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        return await self.resume(gate, (), tools, saved)

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        turn = await self.start_nested(gate, tools)
        assert turn.text == ""

    async def check_provider_tools(self, gate: Gate) -> None:
        raise NotImplementedError

    async def _loop(self, gate: Gate, script: Script, tools: SampleTools, at: int, read: dict[str, str]) -> Turn:
        for name in ("look", "pay", "meet", "delegate"):
            gate.declare(name, f"{name.capitalize()} something.", SCHEMA, source="plain")
        while at < len(script):
            calls = [self._call(gate, tools, call, at) for call in script[at]]
            settled = await asyncio.gather(*calls)
            if any(one is None or one.question is not None for one in settled):
                return Turn(saved=json.dumps({"script": script, "turn": at, "read": read}), read=read)
            for call, one in zip(script[at], settled, strict=True):
                read[call.call_id] = str(one.result) if one is not None else ""
            at += 1
        return Turn(text=DONE, read=read)

    async def _call(self, gate: Gate, tools: SampleTools, call: ScriptedCall, at: int) -> Settled | None:
        # The turn is part of the id: a model may use an id again.
        intent = ToolIntent(call_id=f"{call.call_id}@{at}", tool_name=call.tool, arguments={"amount": call.amount})
        execute = self._executor(gate, tools, call.tool)
        try:
            return await gate.call(THREAD, intent, execute, suspends=(Paused,), framework=self.framework)
        except Paused:
            return None

    def _executor(self, gate: Gate, tools: SampleTools, tool: str) -> Execute:
        async def execute(arguments: dict[str, Any]) -> Any:
            match tool:
                case "delegate":
                    inner = await self._call(gate, tools, ScriptedCall("inner", "pay", 5), 0)
                    if inner is None or inner.question is not None:
                        raise Paused
                    return inner.result
                case "meet":
                    return await tools.meet(**arguments)
                case _:
                    return getattr(tools, tool)(**arguments)

        return execute


HARNESS = PlainLoop()
