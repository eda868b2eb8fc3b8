"""Demo agents for a server: offline, with a scripted model and simulated tools.

`refunds` looks up an order, which needs no approval, and refunds money, which requires one. `mailings` needs a value
that only a person has.
"""

from ....agent.agent import Agent
from ....domain.decision import Decision, Verdict
from ....domain.json import JsonObject
from ....domain.tool import CallContext
from ....models.scripted import ScriptedModel, ScriptedTurn, tool_call
from ....registry.decorator import tool
from .served_agent import ServedAgent

_ORDERS = {"A-1042": {"customer": "Ada", "total": 129.0, "paid": True}}


@tool(risk="read")
def find_order(number: str) -> JsonObject:
    """Look an order up.

    Args:
        number: As it is printed on the invoice.
    """
    return _ORDERS.get(number, {"problem": f"There is no order {number}."})


@tool(risk="write", title="Refund {amount} EUR for order {order}", key_facts=("amount", "order", "reason"))
def refund(order: str, amount: float, reason: str = "") -> str:
    """Pay money back.

    Args:
        order: The order's number.
        amount: How much.
        reason: The reason given to the customer.
    """
    return f"Paid back {amount:.2f} for {order}."


def _ask_for_audience(arguments: JsonObject, situation: CallContext) -> Decision:
    return Decision(
        verdict=Verdict.REQUEST_INPUT,
        reason="Only a person knows who should get it.",
        prompt="Who should get the mailing?",
        target_arg="audience",
    )


@tool(authorize=_ask_for_audience, title="Send the mailing {subject}", key_facts=("subject",))
def send_mailing(subject: str, audience: str = "") -> str:
    """Send a mailing.

    Args:
        subject: Its first line.
        audience: Who gets it.
    """
    return f"Sent {subject!r} to {audience}."


def refunds() -> ServedAgent:
    """Build a demo agent whose refund needs approval."""
    turns = [
        ScriptedTurn(text="I look the order up first.", calls=(tool_call("find_order", number="A-1042"),)),
        tool_call("refund", order="A-1042", amount=129.0, reason="The parcel was lost."),
        "The order A-1042 was paid back.",
    ]
    agent = Agent(
        name="refunds",
        provider=ScriptedModel(turns, by_position=True),
        tools=[find_order, refund],
        instructions="You look after orders.",
    )
    return ServedAgent(agent=agent, description="Pays orders back, after a person said yes.")


def mailings() -> ServedAgent:
    """Build a demo agent whose tool requests a value from a person."""
    turns = [
        tool_call("send_mailing", subject="Our new shop"),
        "The mailing is on its way.",
    ]
    agent = Agent(name="mailings", provider=ScriptedModel(turns, by_position=True), tools=[send_mailing])
    return ServedAgent(agent=agent, description="Sends mailings, to whom a person says.")


def demo_agents() -> list[ServedAgent]:
    """Build the agents of the demo server."""
    return [refunds(), mailings()]
