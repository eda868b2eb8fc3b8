"""An agent with three steps that have an effect, the second after an approval. Effects are lines of a file."""

import asyncio
import os
from pathlib import Path

from interlock import Agent, Rule, RulePolicy, ToolContext, tool
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call

#: While there is this file, the first step does not return.
HOLD = "hold"
#: While there is this file, the first step does not return, and continues when it is gone.
SLOW = "slow"


def effects_of(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def clerk() -> Agent:
    folder = Path(os.environ["CLERK_FOLDER"])

    def have_effect(context: ToolContext, number: int) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{context.run_id}:{number}\n")

    @tool(risk="write", concurrency="safe")
    async def step(number: int, context: ToolContext) -> str:
        """A step."""
        have_effect(context, number)
        if number == 1 and (folder / HOLD).exists():
            await asyncio.Event().wait()
        while number == 1 and (folder / SLOW).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # noqa: TID251 - another process removes it
        return "done"

    @tool(risk="write", concurrency="safe")
    async def pay(number: int, context: ToolContext) -> str:
        """A step that a person allows."""
        have_effect(context, number)
        return "paid"

    turns = [
        ScriptedTurn(calls=(tool_call("step", number=1),)),
        ScriptedTurn(calls=(tool_call("pay", number=2),)),
        ScriptedTurn(calls=(tool_call("step", number=3),)),
        ScriptedTurn(text="All done."),
    ]
    rules = [Rule(id="ask", verdict="ask", tools="pay", reason="Money.")]
    return Agent(
        name="clerk",
        provider=ScriptedModel(turns, by_position=True),
        tools=[step, pay],
        policy=RulePolicy(rules, default="allow"),
    )
