"""Tools that bring another agent in: one that is asked and answers, and one that the run is handed to."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..domain.ledger import AGENT
from ..domain.tool import Normalized, ToolContext, ToolDefinition
from ..registry.decorator import tool

#: A run inside a call has limits of its own; this only ends one that hangs.
_DAYS_SECONDS = 7 * 24 * 3600.0

Ask = Callable[[str, ToolContext], Awaitable[Any]]


def agent_tool(name: str, description: str, ask: Ask) -> ToolDefinition:
    """Every call is a run of its own, which `ask` goes on with wherever it stopped."""

    @tool(name=name, description=description, risk="delegate", concurrency="safe", timeout_seconds=_DAYS_SECONDS)
    async def delegate(task: str, ctx: ToolContext) -> Any:
        return await ask(task, ctx)

    return msgspec.structs.replace(delegate, resumes=True)


def handoff_tool(target: str, description: str) -> ToolDefinition:
    """The run goes on with another agent, in the same conversation."""

    def handed_over(said: Any) -> Normalized:
        return Normalized(summary=f"The run goes on with {target}.", text=said or None, state={AGENT: target})

    @tool(
        name=f"handoff_to_{_plain(target)}",
        description=description or f"Hand the conversation over to the agent {target}. It goes on from here.",
        concurrency="exclusive",
        normalize=handed_over,
    )
    async def hand_over(reason: str = "") -> str:
        return reason

    return hand_over


def _plain(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)[:50]
