"""`python -m bench.gate`: what the gate costs on the work of `bench/peers`.

It prints what a governed call costs beside `ToolRuntime.execute`, how long 20 parallel calls of 50 ms take,
and how long after an answer a program that follows `gate.answered()` is woken.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from interlock import Gate, Rule, RulePolicy, ToolIntent

ADAPTERS = Path(__file__).parent / "peers" / "adapters"
_POLICY = RulePolicy([Rule(id="bench", verdict="allow", tools="*", reason="measured")])
_ROUNDS = 5
_ANSWERS = 20
_TARGETS = {"calls": 300.0, "ratio": 1.5, "parallel_ms": 80.0, "wake_ms": 100.0}


def _measure(script: str, section: str) -> dict[str, float]:
    words = [sys.executable, str(ADAPTERS / script), section, "3"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ADAPTERS.parent), "BENCH_TMP": folder}
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


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
    calls = _measure("interlock_gate.py", "counts")
    ratios = [
        _measure("interlock_gate.py", "overhead")["sequential_cpu_us"]
        / _measure("interlock_runtime.py", "overhead")["sequential_cpu_us"]
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
    compare()
