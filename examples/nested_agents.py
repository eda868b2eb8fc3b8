"""An agent asks another one. Each call of it is a separate run: an approval of the outer call covers nothing inside."""

from interlock import (
    Agent,
    Answer,
    CallbackInteractionProvider,
    Question,
    Runner,
    ScriptedModel,
    tool,
    tool_call,
)


@tool(risk="write")
def refund(order: int) -> str:
    """Give the money back."""
    return f"order {order} is refunded"


clerk = Agent(
    name="clerk",
    provider=ScriptedModel([tool_call("refund", order=7), "Order 7 was refunded."]),
    instructions="Do what the policy of the shop allows.",
    tools=[refund],
)
front = Agent(
    name="front",
    provider=ScriptedModel(
        [
            tool_call("ask_clerk", task="Refund order 7."),
            "Your money is on its way.",
        ]
    ),
    instructions="Talk to the customer.",
    tools=[clerk.as_tool(description="Ask the clerk to look up or change an order.")],
)


def person(question: Question) -> Answer:
    print(f"{question.agent} wants {question.tool_name} {question.arguments}")
    return Answer(approved=True, by="ana")


with Runner(front, interaction=CallbackInteractionProvider(person)) as runner:
    result = runner.run_sync("My cup was broken, order 7.")

print("the clerk said:", result.tool_executions[0].output)
print(result.status, "-", result.text)
