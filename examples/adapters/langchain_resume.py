"""An agent of LangChain that continues by itself when a person answers, from whichever process.

Run it with an empty folder, and the command that it prints in another terminal.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from interlock import Gate
from interlock.adapters.langchain import Interlocked, thread_config


def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


class Scripted(FakeMessagesListChatModel):
    """Stands for a model: it refunds the order, then says so."""

    def bind_tools(self, tools: Any, **options: Any) -> "Scripted":
        """Return itself: the script names the tools."""
        return self


async def main(folder: Path) -> None:
    """Start one thread, and continue every one whose question is answered."""
    gate = Gate(folder)
    call = {"id": "call-1", "name": "refund", "args": {"order": 7}}
    model = Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("Order 7 is refunded.")])
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        agent = create_agent(model, [refund], middleware=[Interlocked(gate)], checkpointer=saver)
        config = {"configurable": {"thread_id": "ticket-42"}}
        await agent.ainvoke({"messages": [("user", "Refund order 7.")]}, config, durability="sync")
        (question,) = await gate.inbox.pending()
        print(f"interlock approvals approve {question.action_id} --log {folder}/runs.db", flush=True)

        async for answer in gate.answered(after=0):
            result = await agent.ainvoke(None, thread_config(answer.run_id), durability="sync")
            print(f"{answer.run_id}: {result['messages'][-1].text}")
            break
    await gate.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
