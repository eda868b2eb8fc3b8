"""A loop of your own around a runtime. `model` stands for the API of a model; this one is scripted."""

import asyncio
from collections.abc import Callable
from typing import Any

from interlock import ToolRuntime, tool

Message = dict[str, Any]
Model = Callable[[list[Message], list[dict[str, Any]]], Message]


@tool(risk="read")
def weather(city: str) -> str:
    """What the weather is like.

    Args:
        city: Where.
    """
    return f"{city}: rain"


async def answer(question: str, model: Model) -> str:
    messages: list[Message] = [{"role": "user", "content": question}]
    async with ToolRuntime(tools=[weather]) as runtime:
        while True:
            menu = runtime.tools("openai")
            reply = model(messages, menu)
            messages.append(reply)
            if not reply.get("tool_calls"):
                await runtime.complete()
                return reply["content"]
            result = await runtime.execute(reply["tool_calls"])
            messages += result.messages


def scripted_model(messages: list[Message], tools: list[dict[str, Any]]) -> Message:
    if messages[-1]["role"] == "user":
        name = tools[-1]["function"]["name"]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"city": "Bern"}'}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": f"Take an umbrella. The tool says:\n{messages[-1]['content']}"}


if __name__ == "__main__":
    print(asyncio.run(answer("Do I need an umbrella in Bern?", scripted_model)))
