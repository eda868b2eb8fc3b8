"""The work that is measured: model turns full of small tool calls, the same for everybody who is measured."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias

SLEEP_SECONDS = 0.05

#: A tool call in the shape of OpenAI's chat completions.
Call: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]
Plan: TypeAlias = list[list[Call]]


class LiveRun(Protocol):
    """One run: its turns come one after another."""

    async def turn(self, calls: list[Call]) -> list[Message]: ...

    async def close(self) -> None: ...


#: Opens a run, in memory or with its log at a path.
OpenRun: TypeAlias = Callable[[Path | None], LiveRun]


class Tally:
    """How often a tool really ran."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


TALLY = Tally()


class ScriptedModel:
    """Says what the plan says, and notes when it was asked and when it had answered."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.cpu_ns: list[int] = []
        self.wall_ns: list[int] = []

    async def answer(self, messages: list[Message]) -> Message:
        self._note()
        asked = len(self.cpu_ns) // 2
        said: Message = {"role": "assistant", "content": "done"}
        if asked < len(self._plan):
            said = {"role": "assistant", "tool_calls": self._plan[asked]}
        self._note()
        return said

    def turn_cpu_us(self) -> list[float]:
        """What each turn cost, from one question to the model to the next."""
        asked = self.cpu_ns[::2]
        return [(end - start) / 1e3 for start, end in pairwise(asked)]

    def _note(self) -> None:
        self.cpu_ns.append(time.process_time_ns())
        self.wall_ns.append(time.perf_counter_ns())


async def quick(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    TALLY.add()
    return f"{path}:{count}:{ratio}"


def quick_sync(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    TALLY.add()
    return f"{path}:{count}:{ratio}"


async def sleeping(path: str, count: int, ratio: float) -> str:
    """Wait without holding a thread."""
    TALLY.add()
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


def sleeping_sync(path: str, count: int, ratio: float) -> str:
    """Wait and hold a thread."""
    TALLY.add()
    time.sleep(SLEEP_SECONDS)
    return "ok"


FUNCTIONS: tuple[Callable[..., str | Awaitable[str]], ...] = (quick, quick_sync, sleeping, sleeping_sync)


def make_plan(turns: int, calls: int, tool_name: str = "quick") -> Plan:
    """What the model says in each turn, made before anything is timed."""
    return [[_call(turn * calls + index, tool_name) for index in range(calls)] for turn in range(turns)]


def _call(number: int, tool_name: str) -> Call:
    arguments = json.dumps({"path": f"src/module_{number % 97}.py", "count": number, "ratio": 0.5})
    return {"id": f"call_{number}", "type": "function", "function": {"name": tool_name, "arguments": arguments}}


async def go_through(run: LiveRun, plan: Plan) -> ScriptedModel:
    """The loop around a run, as an agent has it: ask the model, do what it says, until it says nothing to do."""
    model, before = ScriptedModel(plan), TALLY.count
    messages: list[Message] = [{"role": "user", "content": "go"}]
    while True:
        said = await model.answer(messages)
        messages.append(said)
        calls = said.get("tool_calls")
        if not calls:
            break
        messages.extend(await run.turn(calls))
    _check(plan, TALLY.count - before, messages)
    return model


def _check(plan: Plan, executed: int, messages: list[Message]) -> None:
    """A figure of work that was not done is worth nothing."""
    asked = [call["id"] for calls in plan for call in calls]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    if executed != len(asked) or answered != asked:
        raise AssertionError(f"{len(asked)} calls, {executed} executed, {len(answered)} answered")
