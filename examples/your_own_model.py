"""A model of your own: anything with a name, a `stream` and a `close`. This one knows two sentences."""

from collections.abc import AsyncGenerator

from interlock import (
    Agent,
    ModelEvent,
    ModelRequest,
    ProposedCall,
    Runner,
    StreamFinished,
    TextDelta,
    ToolCallDelta,
    ToolMessage,
    Usage,
    tool,
)


class TwoSentences:
    name = "two-sentences"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """It sees the instructions, the conversation and the tools, and answers piece by piece."""
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            yield TextDelta("The dice ")
            yield TextDelta("have spoken.")
            yield StreamFinished(reason="stop", usage=Usage(input_tokens=20, output_tokens=4))
        else:
            yield TextDelta("Let me see.")
            yield ToolCallDelta(ProposedCall(call_id="call_1", tool="dice", arguments='{"sides": 6}'))
            yield StreamFinished(reason="tool_calls", usage=Usage(input_tokens=10, output_tokens=8))

    async def close(self) -> None:
        """There is nothing to close."""


@tool(risk="read")
def dice(sides: int) -> int:
    """Roll a dice."""
    return 4 % sides


with Runner(Agent(provider=TwoSentences(), tools=[dice])) as runner:
    result = runner.run_sync("Roll.")

print(result.text, result.tool_executions[0].output, result.usage.input_tokens + result.usage.output_tokens, "tokens")
