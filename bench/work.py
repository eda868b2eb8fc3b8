"""The work that is measured: model turns full of small tool calls, the same for everybody who is measured."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
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


TALLY = Tally()


async def quick(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    TALLY.count += 1
    return f"{path}:{count}:{ratio}"


def quick_sync(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    TALLY.count += 1
    return f"{path}:{count}:{ratio}"


async def sleeping(path: str, count: int, ratio: float) -> str:
    """Wait without holding a thread."""
    TALLY.count += 1
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


def sleeping_sync(path: str, count: int, ratio: float) -> str:
    """Wait and hold a thread."""
    TALLY.count += 1
    time.sleep(SLEEP_SECONDS)
    return "ok"


FUNCTIONS: tuple[Callable[..., str | Awaitable[str]], ...] = (quick, quick_sync, sleeping, sleeping_sync)


def make_plan(turns: int, calls: int, tool_name: str = "quick") -> Plan:
    """What the model says in each turn, made before anything is timed."""
    return [[_call(turn * calls + index, tool_name) for index in range(calls)] for turn in range(turns)]


def _call(number: int, tool_name: str) -> Call:
    arguments = json.dumps({"path": f"src/module_{number % 97}.py", "count": number, "ratio": 0.5})
    return {"id": f"call_{number}", "type": "function", "function": {"name": tool_name, "arguments": arguments}}


async def go_through(run: LiveRun, plan: Plan) -> None:
    """The loop around a run: every turn's answers join the messages, as they would for a model."""
    messages: list[Message] = [{"role": "user", "content": "go"}]
    before, wanted = TALLY.count, sum(len(calls) for calls in plan)
    for calls in plan:
        messages.append({"role": "assistant", "tool_calls": calls})
        messages += await run.turn(calls)
    answered = sum(1 for message in messages if message["role"] == "tool")
    if TALLY.count - before != wanted or answered != wanted:
        raise AssertionError(f"{wanted} calls, {TALLY.count - before} executed, {answered} answered")
