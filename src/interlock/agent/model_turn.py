"""Ask the model, and record its response. What it may see is recorded before it is asked.

A response and its calls are one commit: the response is sealed and its calls are handed to the pipeline at once, so
either all of them are in the log or the model is asked again.
"""

import asyncio
from contextlib import aclosing
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import TypeAdapter

from ..domain.call import ToolIntent
from ..domain.errors import ModelError
from ..domain.event import ModelFailed, ModelRequested, ModelResponded
from ..domain.json import escape_surrogates
from ..domain.messages import ProposedCall
from ..domain.tool import JsonObject, ToolCatalog
from ..models.interface import ModelRequest, StreamFinished, ToolChoice
from ..models.response_assembly import StreamAccumulator
from ..models.usage import clamp_usage
from ..pipeline.batch import record_tools_offered
from ..pipeline.context import RunContext
from .agent import Agent
from .session import AgentSession


class ModelAnswer(msgspec.Struct):
    """The response of a model: its text, its calls, and how it ended."""

    text: str
    calls: list[ProposedCall]
    end: StreamFinished


async def ask_model(session: AgentSession) -> list[ToolIntent] | None:
    """Ask the model and return the calls of its response; None when there was none: the model failed, or was
    interrupted.
    """
    agent_name = session.run.ledger.active_agent
    run = session.switch_agent(agent_name)
    catalog, agent = run.parts.registry.catalog(run.situation), session.agents[agent_name]
    if catalog.digest != run.ledger.menu_digest:
        await record_tools_offered(catalog, run)
    instructions = agent.instructions
    if not isinstance(instructions, str):
        instructions = await run.parts.check(instructions, run.situation)
    request = _build_request(session, agent, catalog, instructions)
    request_seq = run.recorder.add(_request_event(session, agent, request, catalog))
    session.restart_timer()
    await run.recorder.commit()
    started_at = run.parts.clock.elapsed()
    try:
        answer = await _stream_answer(session, agent, request)
    except ModelError as error:
        message = run.parts.redactor.redact(str(error))
        run.recorder.add(ModelFailed(message=message, retryable=error.retryable), causation_id=request_seq)
        raise
    if answer is None:
        return None
    run.recorder.add(
        _response_event(answer, (run.parts.clock.elapsed() - started_at) / 1e6, run), causation_id=request_seq
    )
    return [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments) for call in answer.calls]


def _response_event(answer: ModelAnswer, duration_ms: float, run: RunContext) -> ModelResponded:
    redact, private = run.parts.redactor.redact, answer.end.private
    kept = ""
    if private and redact(private) != private:
        private = ""  # the provider takes it unchanged or not at all
    elif len(private) > run.parts.limits.max_event_input_bytes:
        private, kept = "", run.parts.artifacts.keep(private.encode())
    return ModelResponded(
        text=redact(escape_surrogates(answer.text)) if answer.text else "",
        call_count=len(answer.calls),
        finish=answer.end.reason,
        usage=clamp_usage(answer.end.usage),
        private=private,
        private_artifact_id=kept,
        duration_ms=duration_ms,
    )


async def _stream_answer(session: AgentSession, agent: Agent, request: ModelRequest) -> ModelAnswer | None:
    accumulator = StreamAccumulator()
    if session.is_interrupted:
        return None
    session.begin_model_call()
    try:
        async with aclosing(agent.provider.stream(request)) as events:
            async for event in events:
                if session.listeners:
                    session.publish(event)
                if isinstance(event, StreamFinished):
                    return ModelAnswer(accumulator.text, accumulator.calls, event)
                accumulator.add(event)
    except asyncio.CancelledError:
        if session.end_model_call() or not session.is_interrupted:
            raise
        return None
    finally:
        session.end_model_call()
    raise ModelError("The answer broke off: the provider never said that it was finished.", retryable=True)


def _build_request(session: AgentSession, agent: Agent, catalog: ToolCatalog, instructions: str) -> ModelRequest:
    dialogue = session.run.ledger.dialogue
    return ModelRequest(
        model=agent.model,
        instructions=instructions,
        messages=session.messages.resolve(
            dialogue.messages + dialogue.open_messages if dialogue.open else dialogue.messages
        ),
        tools=catalog.tools,
        tool_choice=_tool_choice(session, agent, catalog),
        output_schema=output_schema(agent.output_type),
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
    )


def _request_event(session: AgentSession, agent: Agent, request: ModelRequest, catalog: ToolCatalog) -> ModelRequested:
    run = session.run
    kept = ""
    if request.instructions != session.instructions:
        session.instructions = request.instructions
        kept = run.parts.artifacts.keep(run.parts.redactor.redact(request.instructions).encode())
    return ModelRequested(
        menu_digest=catalog.digest,
        message_count=len(request.messages),
        agent=run.situation.agent,
        provider=agent.provider.name,
        model=run.parts.redactor.redact(agent.model),
        tool_choice=request.tool_choice,
        active_ms=session.active_seconds * 1e3,
        instructions_artifact_id=kept,
    )


def _tool_choice(session: AgentSession, agent: Agent, catalog: ToolCatalog) -> ToolChoice:
    """Return the tool choice as declared; once this agent used a tool, it is no longer forced. The declaration never
    changes.
    """
    if agent.tool_choice == "auto":
        return "auto"
    used = session.run.ledger.dialogue.tool_turns.get(session.run.ledger.active_agent, 0)
    if used and agent.reset_tool_choice and agent.tool_choice != "none":
        return "auto"
    choices = ("none", "required", *(spec.name for spec in catalog.tools)) if catalog.tools else ()
    return agent.tool_choice if agent.tool_choice in choices else "auto"


@lru_cache(maxsize=64)
def get_type_adapter(output_type: Any) -> TypeAdapter[Any]:
    """Return the cached pydantic adapter of an output type."""
    return TypeAdapter(output_type)


def output_schema(output_type: Any) -> JsonObject | None:
    """Return the JSON schema of an output type, or None for plain text."""
    return None if output_type is None else _schema(output_type)


@lru_cache(maxsize=64)
def _schema(output_type: Any) -> JsonObject:
    return get_type_adapter(output_type).json_schema()
