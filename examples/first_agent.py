"""An agent that asks before it orders. Set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server."""

from interlock import Agent, OpenAIChat, Runner, tool


@tool(risk="read")
def stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return {"tea": 2, "coffee": 40}.get(item, 0)


@tool(risk="write")
def order(item: str, count: int) -> str:
    """Order more of an item."""
    return f"ordered {count} {item}"


agent = Agent(provider=OpenAIChat("gpt-5-mini"), instructions="Keep the shelves full.", tools=[stock, order])
with Runner(agent, approve=lambda question: input(f"{question.prompt} {question.arguments} [y/N] ") == "y") as runner:
    print(runner.run_sync("What is running out? Order it.").text)
