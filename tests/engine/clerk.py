"""Agents with steps that have an effect, one of them after an approval. Effects are lines of a file."""

import asyncio
import os
from pathlib import Path

from interlock import Agent, Rule, RulePolicy, ToolContext, tool
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call

#: While there is this file, the first step does not return.
HOLD = "hold"
#: While there is this file, the first step does not return, and continues when it is gone.
SLOW = "slow"
#: The steps of `long_clerk`.
LONG_STEPS = 5
#: How long each of them takes, so that a fault meets some in the middle.
_STEP_SECONDS = 0.1


def effects_of(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def clerk() -> Agent:
    """With three steps, the second after an approval."""
    return _make_clerk("step", "pay", "step")


def long_clerk() -> Agent:
    """With five steps that take their time, the third after an approval."""
    return _make_clerk("step", "step", "pay", "step", "step", seconds=_STEP_SECONDS)


def _make_clerk(*names: str, seconds: float = 0.0) -> Agent:
    folder = Path(os.environ["CLERK_FOLDER"])

    def have_effect(context: ToolContext, number: int) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{context.run_id}:{number}\n")

    @tool(risk="write", concurrency="safe")
    async def step(number: int, context: ToolContext) -> str:
        """A step."""
        have_effect(context, number)
        await asyncio.sleep(seconds)  # noqa: TID251 - a call under way
        if number == 1 and (folder / HOLD).exists():
            await asyncio.Event().wait()
        while number == 1 and (folder / SLOW).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # noqa: TID251 - another process removes it
        return "done"

    @tool(risk="write", concurrency="safe")
    async def pay(number: int, context: ToolContext) -> str:
        """A step that a person allows."""
        have_effect(context, number)
        await asyncio.sleep(seconds)  # noqa: TID251 - a call under way
        return "paid"

    calls = [ScriptedTurn(calls=(tool_call(name, number=number),)) for number, name in enumerate(names, 1)]
    rules = [Rule(id="ask", verdict="ask", tools="pay", reason="Money.")]
    return Agent(
        name="clerk",
        provider=ScriptedModel([*calls, ScriptedTurn(text="All done.")], by_position=True),
        tools=[step, pay],
        policy=RulePolicy(rules, default="allow"),
    )
