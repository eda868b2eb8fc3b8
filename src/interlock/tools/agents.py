"""Tools that bring another agent in: one that is asked and answers, and one that the run is handed to."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from pydantic_core import to_json

from ..domain.messages import Usage
from ..domain.state.ledger import AGENT, USAGE
from ..domain.tool import Normalized, ToolContext, ToolDefinition
from ..registry.decorator import tool

#: A run inside a call has limits of its own; this only ends one that hangs.
_DAYS_SECONDS = 7 * 24 * 3600.0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a run inside a call came to."""

    run_id: str
    usage: Usage
    value: Any = None
    #: Why it did not finish; empty when it did.
    problem: str = ""


Ask = Callable[[str, ToolContext], Awaitable[Said]]


def agent_tool(name: str, description: str, ask: Ask) -> ToolDefinition:
    """Every call is a run of its own, which `ask` goes on with wherever it stopped."""

    @tool(
        name=name,
        description=description,
        risk="delegate",
        concurrency="safe",
        timeout_seconds=_DAYS_SECONDS,
        normalize=_told,
    )
    async def delegate(task: str, ctx: ToolContext) -> Said:
        return await ask(task, ctx)

    return msgspec.structs.replace(delegate, resumes=True)


def _told(said: Any) -> Normalized:
    """The answer, and what it cost: that counts in the run around it, too."""
    facts = {"run": said.run_id, USAGE: msgspec.to_builtins(said.usage)}
    if said.problem:
        return Normalized(ok=False, code="tool_failed", summary=said.problem, text=None, facts=facts)
    if isinstance(said.value, str):
        return Normalized(text=said.value, facts=facts)
    return Normalized(text=to_json(said.value).decode(), format="json", facts=facts)


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

    return msgspec.structs.replace(hand_over, hands_over=True)


def _plain(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)[:50]
