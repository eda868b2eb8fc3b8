"""An agent with two tools. It may look; before it orders, a person is asked. The model is scripted."""

from interlock import Agent, CallbackInteractionProvider, Runner, ScriptedModel, tool, tool_call


@tool(risk="read")
def stock(item: str) -> int:
    """How many there are."""
    return {"tea": 2, "coffee": 40}[item]


@tool(risk="write")
def order(item: str, count: int) -> str:
    """Order more."""
    return f"ordered {count} {item}"


model = ScriptedModel(
    [
        [tool_call("stock", item="tea"), tool_call("stock", item="coffee")],
        tool_call("order", item="tea", count=50),
        "Tea was low. I ordered 50.",
    ]
)
person = CallbackInteractionProvider(lambda question: print("asked:", question.prompt, question.arguments) or True)
agent = Agent(provider=model, instructions="Keep the shelves full.", tools=[stock, order])

with Runner(agent, interaction=person) as runner:
    result = runner.run_sync("What is running out? Order it.")

for record in result.tool_executions:
    print(record.tool_name, record.output)
print(result.status, "-", result.text)
