"""Interlock's gate: every call of a turn comes by itself, as a framework makes them."""

import asyncio
from typing import Any

import interlock_loop
from harness import MARK, arguments_json, main

from interlock import Gate, Rule, RulePolicy, ToolIntent

_POLICY = RulePolicy([Rule(id="bench", verdict="allow", tools="*", reason="measured")])


class Adapter(interlock_loop.Adapter):
    def prepare(self, turns: int, calls: int, tool: str) -> Any:
        numbers = [range(turn * calls, (turn + 1) * calls) for turn in range(turns)]
        return [[(f"call_{number}", "t_" + tool, arguments_json(number)) for number in turn] for turn in numbers]

    async def execute(self, plan: Any) -> int:
        gate = Gate(None, policy=_POLICY)
        for each in interlock_loop.TOOLS:
            gate.declare(each.spec.name, each.spec.description, each.spec.parameters_schema)
        functions: dict[str, Any] = {each.name: each.handler for each in interlock_loop.TOOLS}

        async def call(call_id: str, name: str, text: str) -> str:
            async def execute(arguments: dict[str, Any]) -> Any:
                return await functions[name](**arguments)

            return (await gate.call("bench", ToolIntent(call_id=call_id, tool_name=name, arguments=text), execute)).text

        results = 0
        for turn in plan:
            MARK.enter()
            MARK.exit()
            results += len(
                [await call(*turn[0])] if len(turn) == 1 else await asyncio.gather(*(call(*one) for one in turn))
            )
        MARK.enter()
        MARK.exit()
        await gate.close()
        return results

    async def pause_resume(self, turns: int) -> Any:
        raise NotImplementedError("a framework pauses")

    async def durable(self, turns: int, calls: int) -> Any:
        raise NotImplementedError("not measured")


if __name__ == "__main__":
    main(Adapter)
