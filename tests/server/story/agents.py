"""The agent of the stories. What its model wants is in the task: each line that begins with `> ` is a call, as the name
of a tool and its arguments in JSON. Afterwards the model repeats what it was told about the calls, so that it can be
seen in the run's answer.
"""

import json
import os
from pathlib import Path
from typing import Any

from interlock import Rule, RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.domain.messages import AssistantMessage, ToolMessage, UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call

#: The variable that names the file in which tools write down what they did.
LEDGER = "STORY_LEDGER"
MAX_TURNS = 4


@tool
def lookup(order: str) -> str:
    """What is known about an order."""
    return f"{order}: paid 42.00 EUR, delivered"


@tool(risk="network")
def refund(order: str, amount: float) -> str:
    """Give money back."""
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order} {amount}\n")
    return f"refunded {amount} for {order}"


def turn(request: ModelRequest) -> ScriptedTurn:
    if any(isinstance(message, AssistantMessage) for message in request.messages):
        told = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        return ScriptedTurn(text="\n".join(("I was told:", *told)))
    said = [message.text for message in request.messages if isinstance(message, UserMessage)]
    lines = [line[2:].split(" ", 1) for line in said[-1].split("\n") if line.startswith("> ")]
    calls = tuple(tool_call(name, raw=arguments, call_id=f"c{at}") for at, (name, arguments) in enumerate(lines))
    return ScriptedTurn(calls=calls) if calls else ScriptedTurn(text="There is nothing to do.")


def task(words: str, *calls: tuple[str, dict[str, Any]]) -> str:
    return "\n".join([words, *(f"> {name} {json.dumps(arguments)}" for name, arguments in calls)])


shop = Agent(
    provider=ScriptedModel([turn] * MAX_TURNS, by_position=True),
    name="shop",
    tools=(lookup, refund),
    policy=RulePolicy(
        [Rule(id="money-needs-a-person", verdict="ask", tools="refund", reason="Money leaves the house.")],
        default="allow",
    ),
)
