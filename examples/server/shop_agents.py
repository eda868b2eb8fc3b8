"""The agent of a small shop, as `serve.toml` names it. Orders are looked up freely; money needs a person's yes.

The model is a script, so that this runs anywhere. For a real one: `provider=OpenAIChat("gpt-5-mini", api_key=...)`.
"""

from interlock import Agent, Rule, RulePolicy, ScriptedModel, ScriptedTurn, tool, tool_call

ORDERS = {"A-1042": "129.00 EUR, paid, lost on the way"}


@tool(risk="read")
def find_order(number: str) -> str:
    """Look an order up."""
    return ORDERS.get(number, "unknown")


@tool(risk="network")
def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"paid back {amount:.2f} EUR for {order}"


def support() -> Agent:
    """A script by position continues where the conversation is, in whichever process."""
    turns = [
        ScriptedTurn(text="I look the order up.", calls=(tool_call("find_order", number="A-1042"),)),
        tool_call("refund", order="A-1042", amount=129.0),
        "The order A-1042 is settled.",
    ]
    money = Rule(id="money-needs-a-person", verdict="ask", tools="refund", reason="Money leaves the house.")
    return Agent(
        provider=ScriptedModel(turns, by_position=True),
        instructions="You look after orders.",
        tools=[find_order, refund],
        policy=RulePolicy([money], default="allow"),
    )
