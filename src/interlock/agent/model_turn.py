"""Ask the model, and record what it said. What it may see is recorded before it is asked.

An answer and the calls in it are one commit: the answer is sealed and its calls are handed to the pipeline at once, so
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
from ..domain.event import ModelAnswered, ModelAsked, ModelFailed
from ..domain.json import without_surrogates
from ..domain.messages import ProposedCall
from ..domain.tool import JsonObject, Menu
from ..models.accumulator import Heard
from ..models.interface import Finished, ModelRequest, ToolChoice
from ..models.usage import sane
from ..pipeline.batch import record_tools_offered
from ..pipeline.context import RunContext
from .agent import Agent
from .session import Session


class Answer(msgspec.Struct):
    text: str
    calls: list[ProposedCall]
    end: Finished


async def ask_model(session: Session) -> list[ToolIntent] | None:
    """The calls of the answer; None when there was no answer: the model failed, or somebody stopped it."""
    speaker = session.run.ledger.speaker
    run = session.act_as(speaker)
    menu, agent = run.parts.registry.menu(run.situation), session.agents[speaker]
    if menu.digest != run.ledger.menu_digest:
        record_tools_offered(menu, run)
    request = _request(session, agent, menu)
    asked = run.recorder.add(_asked(session, agent, request, menu))
    session.rebase_time()
    await run.recorder.commit()
    began = run.parts.clock.elapsed()
    try:
        answer = await _listen(session, agent, request)
    except ModelError as error:
        message = run.parts.redactor.redact(str(error))
        run.recorder.add(ModelFailed(message=message, retryable=error.retryable), causation_id=asked)
        raise
    if answer is None:
        return None
    run.recorder.add(_answered(answer, (run.parts.clock.elapsed() - began) / 1e6, run), causation_id=asked)
    return [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments) for call in answer.calls]


def _answered(answer: Answer, duration_ms: float, run: RunContext) -> ModelAnswered:
    redact, private = run.parts.redactor.redact, answer.end.private
    kept = ""
    if private and redact(private) != private:
        private = ""  # the provider takes it unchanged or not at all
    elif len(private) > run.parts.limits.max_event_input_bytes:
        private, kept = "", run.parts.artifacts.keep(private.encode())
    return ModelAnswered(
        text=redact(without_surrogates(answer.text)) if answer.text else "",
        call_count=len(answer.calls),
        finish=answer.end.reason,
        usage=sane(answer.end.usage),
        private=private,
        private_artifact_id=kept,
        duration_ms=duration_ms,
    )


async def _listen(session: Session, agent: Agent, request: ModelRequest) -> Answer | None:
    heard = Heard()
    if session.interrupted:
        return None
    session.begin_asking()
    try:
        async with aclosing(agent.provider.stream(request)) as events:
            async for event in events:
                if session.listeners:
                    session.heard(event)
                if isinstance(event, Finished):
                    return Answer(heard.text, heard.calls, event)
                heard.add(event)
    except asyncio.CancelledError:
        if session.end_asking() or not session.interrupted:
            raise
        return None
    finally:
        session.end_asking()
    raise ModelError("The answer broke off: the provider never said that it was finished.", retryable=True)


def _request(session: Session, agent: Agent, menu: Menu) -> ModelRequest:
    situation, dialogue = session.run.situation, session.run.ledger.dialogue
    written = agent.instructions
    return ModelRequest(
        model=agent.model,
        instructions=written if isinstance(written, str) else written(situation),
        messages=session.messages.of(dialogue.messages + dialogue.under_way if dialogue.open else dialogue.messages),
        tools=menu.tools,
        tool_choice=_tool_choice(session, agent, menu),
        output_schema=output_schema(agent.output_type),
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
    )


def _asked(session: Session, agent: Agent, request: ModelRequest, menu: Menu) -> ModelAsked:
    run = session.run
    kept = ""
    if request.instructions != session.instructions:
        session.instructions = request.instructions
        kept = run.parts.artifacts.keep(run.parts.redactor.redact(request.instructions).encode())
    return ModelAsked(
        menu_digest=menu.digest,
        message_count=len(request.messages),
        agent=run.situation.agent,
        provider=agent.provider.name,
        model=run.parts.redactor.redact(agent.model),
        tool_choice=request.tool_choice,
        active_ms=session.active_seconds * 1e3,
        instructions_artifact_id=kept,
    )


def _tool_choice(session: Session, agent: Agent, menu: Menu) -> ToolChoice:
    """As declared; once this agent used a tool, it is no longer forced to. The declaration itself never changes."""
    if agent.tool_choice == "auto":
        return "auto"
    used = session.run.ledger.dialogue.tool_turns.get(session.run.ledger.speaker, 0)
    if used and agent.reset_tool_choice and agent.tool_choice != "none":
        return "auto"
    may_be = ("none", "required", *(spec.name for spec in menu.tools)) if menu.tools else ()
    return agent.tool_choice if agent.tool_choice in may_be else "auto"


@lru_cache(maxsize=64)
def adapter_of(output_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(output_type)


def output_schema(output_type: Any) -> JsonObject | None:
    return None if output_type is None else _schema(output_type)


@lru_cache(maxsize=64)
def _schema(output_type: Any) -> JsonObject:
    return adapter_of(output_type).json_schema()
