"""What tests of whole runs share: calls as a model sends them, and what a run left in its log."""

from interlock import AgentRunEvent, ToolIntent, ToolRuntime
from interlock.domain.event import Fact
from interlock.history.run_handle_view import to_run_handle_events


def call(call_id: str, tool_name: str, /, **arguments: object) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=tool_name, arguments=arguments)


async def facts(runtime: ToolRuntime) -> list[Fact]:
    """Everything that the log has of the run, in order."""
    return [step.event.fact for step in await runtime.replay()]


async def handle_events(runtime: ToolRuntime) -> list[AgentRunEvent]:
    """What the run handle has published so far. `runtime.events()` is the same as a stream."""
    return [shown for step in await runtime.replay() for shown in to_run_handle_events(step.event)]
