"""The agent loop on the measured work: `python -m bench.loop SECTION` prints one line of JSON.

`calls` counts function calls per tool call, Python's and C's, in the event loop's thread; they repeat exactly.
`cpu` is CPU time per tool call in a run of 200 turns, and of a whole run with a single call.
"""

import asyncio
import cProfile
import gc
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from statistics import median

from interlock import (
    Agent,
    Budgets,
    ModelEvent,
    ModelRequest,
    ProposedCall,
    Rule,
    RulePolicy,
    Runner,
    StreamFinished,
    TextDelta,
    ToolCallDelta,
    tool,
)

from .sections import Figures
from .work import FUNCTIONS, TALLY, Plan, make_plan

_TOOLS = [tool(function) for function in FUNCTIONS]
_POLICY = RulePolicy([Rule(id="bench", verdict="allow", tools="*", reason="measured")])
#: No run is to end because it is long.
_BUDGETS = Budgets(max_steps=10**9, max_model_calls=10**9, max_tool_calls=10**9)
_REPEAT = 9


class _Model:
    """Says what the plan says, then that it is done."""

    name = "bench"

    def __init__(self, plan: Plan) -> None:
        self._turns = [
            tuple(
                ToolCallDelta(ProposedCall(call_id=call["id"], tool=name, arguments=text)) for call, name, text in turn
            )
            for turn in ([(call, *call["function"].values()) for call in calls] for calls in plan)
        ]
        self._next = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        turn, self._next = self._next, self._next + 1
        if turn == len(self._turns):
            yield TextDelta("done")
            yield StreamFinished(reason="stop")
            return
        for call in self._turns[turn]:
            yield call
        yield StreamFinished(reason="tool_calls")

    async def close(self) -> None:
        """There is nothing to close."""


async def _run(model: _Model, calls: int) -> None:
    before = TALLY.count
    result = await Runner(Agent(provider=model, tools=_TOOLS, policy=_POLICY, budgets=_BUDGETS)).run("go")
    if result.text != "done" or TALLY.count - before != calls:
        raise AssertionError(f"{calls} calls, {TALLY.count - before} executed: {result.text}")


async def _count(turns: int, calls: int) -> int:
    model = _Model(make_plan(turns, calls))
    profile = cProfile.Profile()
    profile.enable()
    await _run(model, turns * calls)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


async def _cpu_us(turns: int, calls: int) -> float:
    costs: list[float] = []
    for _ in range(_REPEAT):
        model = _Model(make_plan(turns, calls))
        gc.collect()
        began = time.process_time_ns()
        await _run(model, turns * calls)
        costs.append((time.process_time_ns() - began) / turns / calls / 1e3)
    return median(costs)


async def calls() -> Figures:
    await _count(5, 2)
    counted = {turns: await _count(turns, 1) for turns in (20, 40, 200, 220)}
    return {
        "turn_30": (counted[40] - counted[20]) / 20,
        "turn_210": (counted[220] - counted[200]) / 20,
        "parallel_100": await _count(1, 100) / 100,
    }


async def cpu() -> Figures:
    await _cpu_us(5, 2)
    return {
        "cpu_us": await _cpu_us(200, 1),
        "cpu_us_100": await _cpu_us(1, 100),
        "one_call_cpu_us": await _cpu_us(1, 1),
    }


SECTIONS: dict[str, Callable[[], Coroutine[None, None, Figures]]] = {"calls": calls, "cpu": cpu}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SECTIONS[sys.argv[1]]())))
