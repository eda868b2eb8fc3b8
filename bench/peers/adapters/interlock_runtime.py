"""Interlock without its loop: a model turn is `ToolRuntime.execute`, and the loop around it is the benchmark's own."""

from typing import Any

import interlock_loop
from harness import MARK, arguments_json, main

from interlock import ToolRuntime


class Adapter(interlock_loop.Adapter):
    def prepare(self, turns: int, calls: int, tool: str) -> Any:
        def call(number: int) -> dict[str, Any]:
            function = {"name": "t_" + tool, "arguments": arguments_json(number)}
            return {"id": f"call_{number}", "type": "function", "function": function}

        script = [
            {"role": "assistant", "tool_calls": [call(turn * calls + index) for index in range(calls)]}
            for turn in range(turns)
        ]
        return [*script, {"role": "assistant", "content": "done"}]

    def runner(self, log: Any) -> Any:
        return ToolRuntime(tools=interlock_loop.TOOLS, policy=interlock_loop.POLICY, log=log)

    async def loop(self, plan: Any, runner: Any) -> int:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        for response in plan:
            MARK.enter()
            MARK.exit()
            messages.append(response)
            calls = response.get("tool_calls")
            if calls:
                messages.extend((await runner.execute(calls)).messages)
        return sum([message["role"] == "tool" for message in messages])

    async def pause_resume(self, turns: int) -> Any:
        raise NotImplementedError("needs the agent loop")


if __name__ == "__main__":
    main(Adapter)
