"""An agent of the OpenAI Agents SDK that continues by itself when a person answers, from whichever process.

Run it with an empty folder, and the command that it prints in another terminal.
"""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from interlock import Gate
from interlock.adapters.openai_agents import answered, interlocked


@function_tool
def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


async def main(folder: Path) -> None:
    """Start one run, and continue every one whose question is answered."""
    gate = Gate(folder)
    # Stands for a model: it refunds the order, then says so.
    model = ScriptedModel(
        [[function_call("refund", {"order": 7}, call_id="call-1")], [assistant_message("Order 7 is refunded.")]]
    )
    agent = interlocked(Agent(name="shop", model=model, tools=[refund]), gate)
    saved = folder / "ticket-42.json"
    async with gate.run("ticket-42"):
        result = await Runner.run(agent, "Refund order 7.")
    saved.write_text(result.to_state().to_string())
    (question,) = await gate.inbox.pending()
    print(f"interlock approvals approve {question.action_id} --log {folder}/runs.db", flush=True)

    async for answer in gate.answered(after=0):
        async with gate.run(answer.run_id):
            state = await answered(gate, await RunState.from_string(agent, saved.read_text()))
            result = await Runner.run(agent, state)
        print(f"{answer.run_id}: {result.final_output}")
        break
    await gate.close()


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(main(Path(sys.argv[1])))
