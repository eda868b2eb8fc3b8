"""Ask the model, and record its response. What it may see is recorded before it is asked.

A response and its calls are one commit: the response is sealed and its calls are handed to the pipeline at once, so
either all of them are in the log or the model is asked again.

A conversation that does not fit the model's window is shortened first (`context.py`). A summary executes nothing: when
the process dies before it is recorded, it is written again.
"""

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from .. import lazy_module
from ..domain.budget import BudgetCharge
from ..domain.call import ToolIntent
from ..domain.errors import CONTEXT_LENGTH_EXCEEDED, ModelError
from ..domain.event import ContextCompacted, ContextTrimmed, ModelFailed, ModelRequested, ModelResponded
from ..domain.ids import is_valid_name
from ..domain.json import escape_surrogates
from ..domain.messages import Message, ProposedCall, ToolMessage, Usage, UserMessage
from ..domain.rendering import split_rendered
from ..domain.tool import JsonObject, ToolCatalog
from ..models.interface import ModelRequest, StreamFinished, ToolChoice
from ..models.response_assembly import StreamAccumulator
from ..models.usage import clamp_usage
from ..pipeline.artifacts import use_store
from ..pipeline.batch import record_catalog
from ..pipeline.context import RunContext
from ..redaction.interface import MAX_PLAIN_NAMES
from .agent import Agent
from .budgets import reserve_request, settle_request
from .context import (
    SUMMARY_INSTRUCTIONS,
    ContextPlan,
    ContextState,
    build_summary_prompt,
    cut_to_tokens,
    estimate_message,
    estimate_tokens,
    load_parts,
    render_transcript,
)
from .session import AgentSession
from .tracing import trace_chat

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy_module("pydantic")

#: Requests in a row that a provider may refuse as too long. Each is smaller than the one before.
_MAX_OVERFLOWS = 8
_NO_USAGE = Usage()


class ModelAnswer(msgspec.Struct):
    """The response of a model: its text, its calls, and how it ended."""

    text: str
    calls: list[ProposedCall]
    end: StreamFinished


async def ask_model(session: AgentSession) -> list[ToolIntent] | None:
    """Ask the model and return the calls of its response; None when there was none: it was interrupted, or something
    else had to be asked first.
    """
    agent_name = session.run.ledger.active_agent
    run = session.run if session.run.situation.agent == agent_name else session.switch_agent(agent_name)
    catalog, agent = run.parts.registry.catalog(run.situation), session.agents[agent_name]
    if catalog.digest != run.ledger.menu_digest or run.parts.tool_sources:
        catalog = await record_catalog(run)
    instructions = agent.instructions
    match instructions:
        case str():
            pass
        case _:
            instructions = await run.parts.check(instructions, run.situation)
    dialogue = run.ledger.dialogue
    messages = session.window.update(dialogue)
    if session.window.is_unread:
        messages = await session.window.restore()
    estimated_tokens = 0
    if agent.context.is_active(dialogue):
        overhead = session.window.estimate_overhead(instructions, catalog)
        fitting = await _fit_window(session, agent, messages, overhead)
        if fitting is None:
            return None
        messages = fitting
        estimated_tokens = overhead + sum(session.window.sizes()) if agent.context.window_tokens else 0
    if session.window.has_parts:
        messages = await asyncio.to_thread(load_parts, messages, agent.attachments, run.artifacts)
    request = ModelRequest(
        model=agent.model,
        instructions=instructions,
        messages=messages,
        tools=catalog.tools,
        tool_choice="auto" if agent.tool_choice == "auto" else _tool_choice(session, agent, catalog),
        output_schema=None if agent.output_type is None else output_schema(agent.output_type),
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
    )
    kept = await _keep_instructions(session, instructions) if instructions != session.instructions else ""
    event = ModelRequested(
        menu_digest=catalog.digest,
        message_count=len(messages),
        agent=agent_name,
        provider=agent.provider.name,
        model=agent.model and _redact_name(agent.model, run),
        tool_choice=request.tool_choice,
        active_ms=session.take_active_ms(),
        instructions_artifact_id=kept,
        estimated_tokens=estimated_tokens,
    )
    answered = await _request_answer(session, agent, request, event)
    if answered is None:
        return None
    answer, duration_ms, request_seq = answered
    private, kept = await _keep_private(answer.end.private, run) if answer.end.private else ("", "")
    responded = ModelResponded(
        text=run.parts.redactor.redact(escape_surrogates(answer.text)) if answer.text else "",
        call_count=len(answer.calls),
        finish=answer.end.reason,
        usage=answer.end.usage if answer.end.usage == _NO_USAGE else clamp_usage(answer.end.usage),
        private=private,
        private_artifact_id=kept,
        duration_ms=duration_ms,
    )
    run.recorder.add(responded, causation_id=request_seq)
    return [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments) for call in answer.calls]


async def _fit_window(
    session: AgentSession, agent: Agent, messages: tuple[Message, ...], overhead: int
) -> tuple[Message, ...] | None:
    """Shorten a conversation that does not fit. None when a summary was asked for: the budgets count that request, and
    the next one may need another.
    """
    dialogue = session.run.ledger.dialogue
    while plan := agent.context.plan(_context_state(session, agent, messages, overhead)):
        trimmed_count = len(dialogue.trimmed)
        if plan.trim:
            await _trim(session, plan)
        session.window.update(dialogue)
        messages = await session.window.restore()
        if plan.compact:
            await _compact(session, agent, messages, plan)
            return None
        if len(dialogue.trimmed) == trimmed_count:
            break
    return messages


async def summarize_now(session: AgentSession) -> bool:
    """Ask the model for a summary of everything before the newest turn. Return False when there is none: nothing was
    left to summarize, or the model was interrupted.
    """
    agent_name = session.run.ledger.active_agent
    run, agent = session.switch_agent(agent_name), session.agents[agent_name]
    dialogue = run.ledger.dialogue
    session.window.update(dialogue)
    messages = await session.window.restore()
    plan, compacted = agent.context.plan_summary(_context_state(session, agent, messages, 0)), dialogue.compacted
    if plan is not None:
        await _compact(session, agent, messages, plan)
        await run.recorder.commit()
    return dialogue.compacted > compacted


async def _request_answer(
    session: AgentSession, agent: Agent, request: ModelRequest, event: ModelRequested
) -> tuple[ModelAnswer, float, int] | None:
    """Record a request, send it, and return the answer, its duration and the seq of the request. None when it was
    interrupted, or when it was too long and may be tried again with less.
    """
    run, budgets = session.run, session.run.parts.budget_source
    charges: tuple[BudgetCharge, ...] = ()
    if budgets is not None and budgets.budgets:
        charges = await reserve_request(agent, request, event.estimated_tokens, run)
    request_seq = run.recorder.add(event)
    if not (run.recorder.is_immediate and run.recorder.write()):
        await run.recorder.commit()
    started_at = run.parts.clock.elapsed()
    try:
        answering = _stream_answer(session, agent, request, publish=not event.purpose)
        is_traced = run.parts.telemetry.is_connected
        answer = await (trace_chat(session, agent, request, answering) if is_traced else answering)
    except ModelError as error:
        message = run.parts.redactor.redact(str(error))
        too_long = error.code == CONTEXT_LENGTH_EXCEEDED
        size = sum(map(estimate_message, request.messages)) if too_long else 0
        code = CONTEXT_LENGTH_EXCEEDED if too_long else ""
        failed = ModelFailed(message=message, retryable=error.retryable, code=code, estimated_tokens=size)
        run.recorder.add(failed, causation_id=request_seq)
        if charges and not session.has_output:  # one that broke off may have been billed
            await settle_request(charges, _NO_USAGE, run)
        if too_long and run.ledger.dialogue.overflows < _MAX_OVERFLOWS:
            return None
        raise
    if answer is None:  # interrupted: what it used is not known, so the reservation counts
        return None
    if charges:
        await settle_request(charges, clamp_usage(answer.end.usage), run)
    return answer, (run.parts.clock.elapsed() - started_at) / 1e6, request_seq


def _context_state(session: AgentSession, agent: Agent, messages: tuple[Message, ...], overhead: int) -> ContextState:
    return ContextState(
        dialogue=session.run.ledger.dialogue,
        messages=messages,
        sizes=session.window.sizes(),
        head=session.window.head,
        overhead=overhead,
        answer_tokens=agent.max_output_tokens,
    )


async def _trim(session: AgentSession, plan: ContextPlan) -> None:
    """Keep the outputs that are left out as artifacts, in a thread, and record which."""
    run, dialogue = session.run, session.run.ledger.dialogue
    messages = [dialogue.messages[place] for place in plan.trim]

    def keep() -> dict[str, str]:
        outputs: dict[str, str] = {}
        for message in messages:
            rendered = split_rendered(message.text)
            if isinstance(message, ToolMessage) and rendered is not None:
                content = rendered.output.encode(errors="backslashreplace")
                outputs[message.call_id] = rendered.artifact_id or run.parts.artifacts.keep(content)
        return outputs

    first, last = dialogue.seqs[plan.trim[0]], dialogue.seqs[plan.trim[-1]]
    run.recorder.add(ContextTrimmed(outputs=await use_store(run.parts.artifacts, keep), first_seq=first, last_seq=last))


async def _compact(session: AgentSession, agent: Agent, messages: tuple[Message, ...], plan: ContextPlan) -> None:
    """Ask the model for a summary of the older turns, and record it with what it replaces."""
    run, dialogue, window = session.run, session.run.ledger.dialogue, session.window
    task, end = dialogue.task_count, plan.compact - dialogue.compacted + window.head
    transcript = render_transcript(messages[task:end])
    prompt = build_summary_prompt(messages[:task], transcript, plan.transcript_tokens)
    most = min(plan.summary_tokens, agent.max_output_tokens or plan.summary_tokens)
    request = ModelRequest(
        model=agent.model,
        instructions=SUMMARY_INSTRUCTIONS,
        messages=(UserMessage(prompt),),
        max_output_tokens=most,
        temperature=agent.temperature,
    )
    estimated = estimate_tokens(prompt) + estimate_tokens(SUMMARY_INSTRUCTIONS) if agent.context.window_tokens else 0
    event = ModelRequested(
        menu_digest="",
        message_count=1,
        agent=run.situation.agent,
        provider=agent.provider.name,
        model=run.parts.redactor.redact(agent.model),
        active_ms=session.take_active_ms(),
        purpose="summary",
        estimated_tokens=estimated,
    )
    answered = await _request_answer(session, agent, request, event)
    if answered is None:
        return
    answer, duration_ms, request_seq = answered
    summary = cut_to_tokens(run.parts.redactor.redact(escape_surrogates(answer.text)), most).strip()
    compacted = ContextCompacted(
        summary=summary or "(The model gave no summary.)",
        first_seq=dialogue.seqs[task],
        last_seq=dialogue.seqs[plan.compact - 1],
        artifact_id=await use_store(
            run.parts.artifacts, run.parts.artifacts.keep, transcript.encode(errors="backslashreplace")
        ),
        usage=clamp_usage(answer.end.usage),
        duration_ms=duration_ms,
    )
    run.recorder.add(compacted, causation_id=request_seq)


async def _keep_private(private: str, run: RunContext) -> tuple[str, str]:
    """Return what the provider wants back as it is recorded: as it is, or the artifact that has it."""
    artifacts = run.parts.artifacts
    if run.parts.redactor.redact(private) != private:
        return "", ""  # the provider takes it unchanged or not at all
    if len(private) <= run.parts.limits.max_event_input_bytes:
        return private, ""
    return "", await use_store(artifacts, artifacts.keep, private.encode())


async def _stream_answer(
    session: AgentSession, agent: Agent, request: ModelRequest, *, publish: bool
) -> ModelAnswer | None:
    accumulator = StreamAccumulator()
    publish = publish and (bool(session.listeners) or session.run.parts.on_output is not None)
    if session.is_interrupted:
        return None
    session.begin_model_call()
    session.has_output = False
    try:
        events = agent.provider.stream(request)
        try:
            async for event in events:
                session.has_output = True
                if publish:
                    session.publish(event)
                match event:
                    case StreamFinished():
                        return ModelAnswer(accumulator.text, accumulator.calls, event)
                    case _:
                        accumulator.add(event)
        finally:
            await events.aclose()
    except asyncio.CancelledError:
        if session.end_model_call() or not session.is_interrupted:
            raise
        return None
    finally:
        session.model_task = None
    raise ModelError("The answer broke off: the provider never said that it was finished.", retryable=True)


async def _keep_instructions(session: AgentSession, instructions: str) -> str:
    """Store the instructions of this and the following requests, once by a process."""
    parts = session.run.parts
    name = f"instructions\n{instructions}"
    kept = parts.known_artifacts.find(name)
    if not kept:
        kept = await use_store(parts.artifacts, parts.artifacts.keep, parts.redactor.redact(instructions).encode())
        parts.known_artifacts.add(name, kept)
    session.instructions = instructions
    return kept


def _redact_name(name: str, run: RunContext) -> str:
    """Return a name without secrets, and remember one that has none: every request has it."""
    redactor = run.parts.redactor
    if name in redactor.plain_names:
        return name
    redacted = redactor.redact(name)
    if redacted == name and is_valid_name(name) and len(redactor.plain_names) < MAX_PLAIN_NAMES:
        redactor.plain_names.add(name)
    return redacted


def _tool_choice(session: AgentSession, agent: Agent, catalog: ToolCatalog) -> ToolChoice:
    """Return the tool choice as declared; once this agent used a tool, it is no longer forced. The declaration never
    changes.
    """
    used = session.run.ledger.dialogue.tool_turns.get(session.run.ledger.active_agent, 0)
    if used and agent.reset_tool_choice and agent.tool_choice != "none":
        return "auto"
    choices = ("none", "required", *(spec.name for spec in catalog.tools)) if catalog.tools else ()
    return agent.tool_choice if agent.tool_choice in choices else "auto"


@lru_cache(maxsize=64)
def get_type_adapter(output_type: Any) -> "pydantic.TypeAdapter[Any]":
    """Return the cached pydantic adapter of an output type."""
    return pydantic.TypeAdapter(output_type)


def output_schema(output_type: Any) -> JsonObject | None:
    """Return the JSON schema of an output type, or None for plain text."""
    return None if output_type is None else _schema(output_type)


@lru_cache(maxsize=64)
def _schema(output_type: Any) -> JsonObject:
    return get_type_adapter(output_type).json_schema()
