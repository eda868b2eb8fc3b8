"""Interlock in the benchmark of its peers: a model turn is `ToolRuntime.execute`, a run is a loop around it.

    peers.py run --add interlock=PYTHON:bench/peers_adapter.py --import-stmt "interlock=import interlock"

`common` is the peers' harness; it is on the path when their driver runs this file.
"""

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from common import MARK, SLEEP_S, args_json, main, now, result_text

from interlock import Rule, RulePolicy, SqliteLog, ToolRuntime, tool


@tool
async def t_async(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    MARK.tool()
    return result_text(path, count, ratio)


@tool
def t_sync(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    MARK.tool()
    return result_text(path, count, ratio)


@tool
async def t_sleep(path: str, count: int, ratio: float) -> str:
    """Wait without blocking."""
    MARK.tool()
    await asyncio.sleep(SLEEP_S)
    return "ok"


@tool
def t_sleep_sync(path: str, count: int, ratio: float) -> str:
    """Wait and block a thread."""
    MARK.tool()
    time.sleep(SLEEP_S)
    return "ok"


TOOLS = [t_async, t_sync, t_sleep, t_sleep_sync]


class A:
    NAME = "interlock"
    PKGS = ("pydantic", "msgspec", "jiter")
    AUDIT_HOOK = False

    async def setup(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["BENCH_TMP"]))
        self.policy = RulePolicy()
        self.count = 0
        self.script: list[dict[str, Any]] = []
        self.turn = 0
        self.seen: list[dict[str, Any]] = []

    def prepare(self, turns: int, calls: int, tool: str) -> list[dict[str, Any]]:
        def call(number: int) -> dict[str, Any]:
            function = {"name": "t_" + tool, "arguments": args_json(number)}
            return {"id": f"call_{number}", "type": "function", "function": function}

        script = [
            {"role": "assistant", "tool_calls": [call(turn * calls + index) for index in range(calls)]}
            for turn in range(turns)
        ]
        return [*script, {"role": "assistant", "content": "done"}]

    async def model(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        MARK.enter()
        response = self.script[self.turn]
        self.turn += 1
        self.seen = messages
        MARK.exit()
        return response

    async def execute(self, plan: list[dict[str, Any]]) -> int:
        return await self.loop(plan, ToolRuntime(tools=TOOLS, policy=self.policy))

    async def loop(self, plan: list[dict[str, Any]], runtime: ToolRuntime) -> int:
        self.script, self.turn = plan, 0
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        while True:
            response = await self.model(messages)
            messages.append(response)
            calls = response.get("tool_calls")
            if not calls:
                return sum(1 for message in self.seen if message["role"] == "tool")
            messages.extend((await runtime.execute(calls)).messages)

    async def enable_governed(self) -> None:
        """The log is always on; here is a policy with a rule that looks at every call as well."""
        self.policy = RulePolicy([Rule(id="bench", verdict="allow", tools="t_*", reason="benchmark")])

    async def pause_resume(self, turns: int) -> dict[str, float]:
        raise NotImplementedError("needs the agent loop")

    async def durable(self, turns: int, calls: int) -> dict[str, float]:
        self.count += 1
        path = self.folder / f"{self.count}.db"
        log = SqliteLog(path)
        plan = self.prepare(turns, calls, "async")
        wall, cpu = now()
        await self.loop(plan, ToolRuntime(tools=TOOLS, policy=self.policy, log=log))
        wall_end, cpu_end = now()
        await log.close()
        number = turns * calls
        each = {
            "us_per_call": (wall_end - wall) / number / 1e3,
            "cpu_us_per_call": (cpu_end - cpu) / number / 1e3,
            "bytes_per_call": path.stat().st_size / number,
        }
        return {**each, **{f"{name}_full": value for name, value in each.items()}}

    async def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(A)
