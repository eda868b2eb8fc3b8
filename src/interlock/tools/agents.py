"""Tools that involve another agent: one that is called and answers, and one that the run is handed to."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .. import lazy_module
from ..domain.messages import Usage
from ..domain.state.ledger import AGENT_STATE_KEY, USAGE_FACT_KEY
from ..domain.tool import NormalizedOutput, ToolContext, ToolDefinition
from ..registry.decorator import tool

if TYPE_CHECKING:
    import pydantic_core
else:
    pydantic_core = lazy_module("pydantic_core")

#: A child run has its own limits; this only ends one that hangs.
_TIMEOUT_SECONDS = 7 * 24 * 3600.0


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child run."""

    run_id: str
    usage: Usage
    value: Any = None
    #: Why it did not finish; empty when it did.
    problem: str = ""


AskAgent = Callable[[str, ToolContext], Awaitable[AgentAnswer]]


def agent_tool(name: str, description: str, ask: AskAgent) -> ToolDefinition:
    """Return a tool whose calls are child runs; `ask` starts or resumes them."""

    @tool(
        name=name,
        description=description,
        risk="delegate",
        concurrency="safe",
        timeout_seconds=_TIMEOUT_SECONDS,
        normalize=_normalize_answer,
    )
    async def delegate(task: str, ctx: ToolContext) -> AgentAnswer:
        return await ask(task, ctx)

    return msgspec.structs.replace(delegate, resumes=True)


def _normalize_answer(answer: Any) -> NormalizedOutput:
    """Return the answer and its usage, which also counts in the parent run."""
    facts = {"run": answer.run_id, USAGE_FACT_KEY: msgspec.to_builtins(answer.usage)}
    if answer.problem:
        return NormalizedOutput(ok=False, code="tool_failed", summary=answer.problem, text=None, facts=facts)
    if isinstance(answer.value, str):
        return NormalizedOutput(text=answer.value, facts=facts)
    return NormalizedOutput(text=pydantic_core.to_json(answer.value).decode(), format="json", facts=facts)


def handoff_tool(target: str, description: str) -> ToolDefinition:
    """Return a tool that hands the run to another agent, in the same conversation."""

    def handed_over(said: Any) -> NormalizedOutput:
        return NormalizedOutput(
            summary=f"The run goes on with {target}.", text=said or None, state={AGENT_STATE_KEY: target}
        )

    @tool(
        name=f"handoff_to_{_to_tool_name(target)}",
        description=description or f"Hand the conversation over to the agent {target}. It goes on from here.",
        concurrency="exclusive",
        normalize=handed_over,
    )
    async def hand_over(reason: str = "") -> str:
        return reason

    return msgspec.structs.replace(hand_over, hands_over=True)


def _to_tool_name(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)[:50]
