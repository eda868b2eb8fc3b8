"""One agent hands the conversation to another: the same run, other instructions, other tools."""

import asyncio

from interlock import Agent, Runner, ScriptedModel, tool, tool_call
from interlock.domain.event import ModelRequested


@tool(risk="read")
def invoice(number: int) -> str:
    """What an invoice is about."""
    return f"invoice {number}: 12.50, paid"


billing = Agent(
    name="billing",
    provider=ScriptedModel([tool_call("invoice", number=3), "Invoice 3 is paid."]),
    instructions="You know the invoices.",
    tools=[invoice],
    handoff_description="Hand over whatever is about invoices and money.",
)
reception = Agent(
    name="reception",
    provider=ScriptedModel([tool_call("handoff_to_billing", reason="It is about an invoice.")]),
    instructions="Find out what it is about.",
    handoffs=(billing,),
)


async def main() -> None:
    async with Runner(reception) as runner:
        handle = await runner.start("Did I pay invoice 3?")
        result = await handle.result()
        async for event in handle.log_events():
            if isinstance(event.fact, ModelRequested):
                print("asked:", event.fact.agent)
        print([record.tool_name for record in result.tool_executions])
        print(result.status, "-", result.text)


if __name__ == "__main__":
    asyncio.run(main())
