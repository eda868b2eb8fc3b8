"""Spans of an agent at work, and of its requests to the model. Used only where something may collect them."""

from collections.abc import Awaitable, Callable
from typing import Any

from ..domain.messages import Usage
from ..domain.state.lifecycle import RunState
from ..models.interface import ModelRequest, StreamFinished
from ..models.usage import clamp_usage
from ..telemetry.interface import AgentInvocation, ChatRequest
from .agent import Agent
from .next_step import AgentStep, Idle
from .session import AgentSession

#: The state of a conversation in which it is the user's turn.
_IDLE = "idle"


async def trace_agent(session: AgentSession, run_steps: Callable[[AgentSession], Awaitable[AgentStep]]) -> AgentStep:
    """Run the steps in the span of the agent."""
    run, ledger = session.run, session.run.ledger
    agent, before, waited_ns = session.agents[ledger.active_agent], ledger.dialogue.usage, run.executions.waited_ns
    invocation = AgentInvocation(
        agent=ledger.active_agent,
        run_id=ledger.run_id,
        parent_run_id=ledger.parent_run_id,
        provider=agent.provider.name,
        model=run.parts.redactor.redact(agent.model),
        resumed_from=ledger.paused_trace,
    )
    with run.parts.telemetry.agent_span(invocation) as span:
        step = await run_steps(session)
        span.finish(
            _IDLE if isinstance(step, Idle) else ledger.state.value,
            _subtract(ledger.dialogue.usage, before),
            waiting=[question.kind for question in ledger.open_questions()],
            waited_ms=(run.executions.waited_ns - waited_ns) / 1e6,
        )
        if ledger.state is RunState.FAILED:
            span.fail(ledger.code or "run_failed")
    return step


async def trace_chat(session: AgentSession, agent: Agent, request: ModelRequest, answering: Awaitable[Any]) -> Any:
    """Await the answer of a model in the span of the request."""
    run = session.run
    described = ChatRequest(
        agent=run.situation.agent,
        run_id=run.ledger.run_id,
        provider=agent.provider.name,
        model=run.parts.redactor.redact(agent.model),
        is_structured=request.output_schema is not None,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
    )
    with run.parts.telemetry.chat_span(described) as span:
        answer = await answering
        if answer is not None:
            end: StreamFinished = answer.end
            span.finish(end.reason, clamp_usage(end.usage))
    return answer


def _subtract(usage: Usage, before: Usage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens - before.input_tokens,
        output_tokens=usage.output_tokens - before.output_tokens,
        cached_tokens=usage.cached_tokens - before.cached_tokens,
        cost=usage.cost - before.cost,
    )
