"""The gate on the measured work: `python -m bench.gate SECTION` as for `bench.ours`; `python -m bench.gate` compares.

The comparison prints what a governed call costs beside `ToolRuntime.execute`, how long 20 parallel calls of 50 ms take,
and how long after an answer a program that follows `gate.answered()` is woken.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from interlock import Gate, Rule, RulePolicy, ToolIntent, tool

from .sections import main
from .work import FUNCTIONS, Call, Message

_POLICY = RulePolicy([Rule(id="bench", verdict="allow", tools="*", reason="measured")])
_DECLARED = {function.__name__: (tool(function).spec, function) for function in FUNCTIONS}
_ROUNDS = 5
_ANSWERS = 20
_TARGETS = {"calls": 300.0, "ratio": 1.5, "parallel_ms": 80.0, "wake_ms": 100.0}


class GateRun:
    """Implements `work.LiveRun`: every call of a turn comes by itself, as a framework makes them."""

    def __init__(self, path: Path | None) -> None:
        self._gate = Gate(None if path is None else path.with_suffix(""), policy=_POLICY)
        for spec, _ in _DECLARED.values():
            self._gate.declare(spec.name, spec.description, spec.parameters_schema)

    async def turn(self, calls: list[Call]) -> list[Message]:
        if len(calls) == 1:
            return [await self._call(calls[0])]
        return await asyncio.gather(*map(self._call, calls))

    async def _call(self, call: Call) -> Message:
        name, text = call["function"]["name"], call["function"]["arguments"]
        intent = ToolIntent(call_id=call["id"], tool_name=name, arguments=text)
        function: Any = _DECLARED[name][1]

        async def execute(arguments: dict[str, Any]) -> Any:
            return await function(**arguments)

        settled = await self._gate.call("bench", intent, execute)
        return {"role": "tool", "tool_call_id": call["id"], "content": settled.text}

    async def close(self) -> None:
        await self._gate.close()


def _measure(module: str, section: str) -> dict[str, float]:
    words = [sys.executable, "-m", module, section]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


async def _parallel_ms() -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with Gate(folder, policy=_POLICY) as gate:
            gate.declare("wait", "Wait.", {"type": "object", "properties": {}})

            async def wait(arguments: dict[str, Any]) -> str:
                await asyncio.sleep(0.05)
                return "done"

            def call(name: str) -> Any:
                return gate.call("bench", ToolIntent(call_id=name, tool_name="wait", arguments={}), wait)

            await call("first")
            began = time.perf_counter()
            await asyncio.gather(*(call(f"c{number}") for number in range(20)))
            return (time.perf_counter() - began) * 1e3


async def _wake_ms() -> float:
    """The median time from an answer in another gate to the program that waits for it."""
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with Gate(folder) as gate, Gate(folder) as person:
            gate.declare("pay", "Pay.", {"type": "object", "properties": {}})
            for number in range(_ANSWERS):
                intent = ToolIntent(call_id=f"c{number}", tool_name="pay", arguments={})
                await gate.call("bench", intent)
                (question,) = await gate.questions("bench")
                woken = asyncio.ensure_future(anext(gate.answered(await gate.log.feed_position())))
                began = time.perf_counter()
                await person.inbox.reject(question, by="bench")
                await woken
                waits.append((time.perf_counter() - began) * 1e3)
                await gate.call("bench", intent)
                await gate.release("bench")
    return median(waits)


def compare() -> None:
    """Print the figures, each with what it has to reach."""
    calls = _measure("bench.gate", "calls")
    ratios = [
        _measure("bench.gate", "sequential")["cpu_us"] / _measure("bench.ours", "sequential")["cpu_us"]
        for _ in range(_ROUNDS)
    ]
    figures = {
        "calls": calls["turn_30"],
        "ratio": median(ratios),
        "parallel_ms": median(asyncio.run(_parallel_ms()) for _ in range(_ROUNDS)),
        "wake_ms": asyncio.run(_wake_ms()),
    }
    labels = {
        "calls": "Python and C calls per governed call",
        "ratio": "CPU of Gate.call / ToolRuntime.execute",
        "parallel_ms": "20 parallel calls of 50 ms, on disk, ms",
        "wake_ms": "an answer wakes the program after, ms",
    }
    print(f"calls late in a run: {calls['turn_210']:.0f} (early {calls['turn_30']:.0f})")
    for name, value in figures.items():
        reached = "ok" if value <= _TARGETS[name] else "missed"
        print(f"{labels[name]:<42} {value:8.2f}  at most {_TARGETS[name]:g}  {reached}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(GateRun)
    else:
        compare()
