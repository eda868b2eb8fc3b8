"""An agent of pydantic-ai that continues by itself when a person answers, from whichever process.

Run it with an empty folder, and the command that it prints in another terminal.
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from interlock import Gate
from interlock.adapters.pydantic_ai import Interlocked, answers


def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand for a model: refund the order, then repeat what the tool said."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("refund", {"order": 7}, "call-1")])


async def main(folder: Path) -> None:
    """Start one conversation, and continue every one whose question is answered."""
    gate = Gate(folder)
    agent = Agent(
        FunctionModel(scripted),
        tools=[refund],
        output_type=[str, DeferredToolRequests],
        capabilities=[Interlocked(gate)],
    )
    saved = folder / "ticket-42.json"
    result = await agent.run("Refund order 7.", conversation_id="ticket-42")
    saved.write_bytes(result.all_messages_json())
    (question,) = await gate.inbox.pending()
    print(f"interlock approvals approve {question.action_id} --log {folder}/runs.db", flush=True)

    async for answer in gate.answered(after=0):
        history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes())
        result = await agent.run(message_history=history, deferred_tool_results=answers(history))
        print(f"{answer.run_id}: {result.output}")
        break
    await gate.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
