"""A small desk of tools behind a gate: `look` reads, `pay` writes a line into a file for each payment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock import Gate, ToolIntent
from interlock.domain.event import Event, decode_event
from tests.patience import eventually_read

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
    "additionalProperties": False,
}


def intent(tool: str, call_id: str, amount: Any = 5) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=tool, arguments={"amount": amount})


class Desk:
    """Executes the tools, and knows what happened."""

    def __init__(self, folder: Path) -> None:
        self.payments = folder / "payments"

    async def pay(self, arguments: dict[str, Any]) -> dict[str, Any]:
        with self.payments.open("a") as file:
            file.write(f"{arguments['amount']}\n")
        return {"paid": arguments["amount"]}

    @property
    def paid(self) -> list[int]:
        return [int(line) for line in self.payments.read_text().split()] if self.payments.exists() else []


def open_gate(folder: Path, **options: Any) -> Gate:
    gate = Gate(folder / "state", risk={"look": "read"}, **options)
    gate.declare("look", "Look something up.", SCHEMA, source="test")
    gate.declare("pay", "Pay somebody.", SCHEMA, source="test")
    return gate


async def answer(gate: Gate, run_id: str, *, approved: bool = True, **fields: Any) -> None:
    (question,) = await gate.questions(run_id)
    decide: Callable[..., Any] = gate.inbox.approve if approved else gate.inbox.reject
    await decide(question, by="ada", **fields)


async def events(gate: Gate, run_id: str) -> list[Event]:
    return [decode_event(entry) for entry in await gate.log.read(run_id)]


async def until_asked(gate: Gate, run_id: str) -> None:
    """Wait until the run asks something."""
    await eventually_read(lambda: gate.questions(run_id))
