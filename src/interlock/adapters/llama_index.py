"""LlamaIndex: every tool of an agent workflow passes the gate, and a question is an `InputRequiredEvent`.

agent = interlocked(FunctionAgent, gate)(name="shop", tools=[refund], llm=llm)
async with gate.run("ticket-42"):
    saved = await pause(agent.run("Refund order 7.", memory=memory))  # None when it is done
    handler = await resume(agent, saved, memory)  # after a pause
"""

import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar, Unpack

from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, ToolCall, ToolCallResult
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.multi_agent_workflow import handoff
from llama_index.core.agent.workflow.workflow_events import AgentInput, AgentWorkflowStartEvent
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool, BaseTool, ToolMetadata, ToolOutput, adapt_to_async_tool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonSerializer, step
from workflows.context.state_store import UnserializableKeyWarning
from workflows.handler import WorkflowHandler
from workflows.runtime.types.results import AddWaiter, WaitingForEvent

from ..domain.call import Question, ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, describe_question
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "llama-index"
#: How often the workflow was started: counted in its state.
_RUNS = "interlock_runs"
#: Options of a model with which its provider executes tools.
_HOSTED = ("built_in_tools", "built_in_tool")
#: The call that the current step is about.
_CALL_ID: ContextVar[str] = ContextVar("interlock_li_call", default="")

_Agent = TypeVar("_Agent", bound=type)


def interlocked(agent_class: _Agent, gate: Gate) -> _Agent:
    """Return the class of an agent, such as `FunctionAgent` or `AgentWorkflow`, with the gate before its tools."""
    if not issubclass(agent_class, (BaseWorkflowAgent, AgentWorkflow)) or issubclass(agent_class, CodeActAgent):
        raise ConfigurationError(f"The gate cannot govern the calls of {agent_class.__name__}.")

    class Interlocked(agent_class):  # type: ignore[misc, valid-type]
        @step
        async def init_run(self, ctx: Context, ev: AgentWorkflowStartEvent) -> AgentInput:
            _check_coverage(self)
            await ctx.store.set(_RUNS, await ctx.store.get(_RUNS, default=0) + 1)
            return await super().init_run(ctx, ev)

        @step
        async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
            # A model may use an id again, in a later message.
            done = await ctx.store.get("current_tool_calls", default=[])
            _CALL_ID.set(f"{ev.tool_id}@{await ctx.store.get(_RUNS, default=0)}.{len(done)}")
            return await super().call_tool(ctx, ev)

        async def _call_tool(self, ctx: Context, tool: AsyncBaseTool, tool_input: dict[str, Any]) -> ToolOutput:
            call_tool = super()._call_tool
            if getattr(tool, "real_fn", None) is handoff:  # only steers the framework
                return await call_tool(ctx, tool, tool_input)
            agent = await ctx.store.get("current_agent_name", default=getattr(self, "name", ""))
            return await _call(gate, ctx, tool, tool_input, agent, call_tool)

    Interlocked.__name__ = agent_class.__name__
    return Interlocked  # type: ignore[return-value]


class ContinueEvent(HumanResponseEvent):
    """Makes the steps that wait for people run again. It says nothing about what they answered."""


async def pause(handler: WorkflowHandler) -> JsonObject | None:
    """Run a workflow until it is done, or until all that is left waits for people. Return its state then, as JSON."""
    is_asked = False
    async for event in handler.stream_events(expose_internal=True):
        is_asked = is_asked or (isinstance(event, InputRequiredEvent) and bool(event.get("payload_hash", None)))
        if is_asked and not await handler.ctx.running_steps():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnserializableKeyWarning)  # `resume` asks for the memory
                state = handler.ctx.to_dict(serializer=JsonSerializer())
            await handler.cancel_run()
            return state
    return None


async def resume(agent: Any, saved: JsonObject, memory: BaseMemory) -> WorkflowHandler:
    """Continue a workflow that was paused. Its state has no memory: give the one that it was started with.

    This approves nothing: every open call is put to the gate again, and the log says what people answered.
    """
    handler = agent.run(ctx=Context.from_dict(agent, saved, serializer=JsonSerializer()))
    await handler.ctx.store.set("memory", memory)  # after `run`, which would drop it
    handler.ctx.send_event(ContinueEvent(response=""))
    return handler


def interlock_tools(gate: Gate, *tools: Any) -> list[BaseTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for an agent of an `interlocked` class."""
    return [_OwnTool(definition) for definition in gate.tools(*tools)]


def tools(tools: Iterable[BaseTool], **options: Unpack[ToolOptions]) -> list[ToolDefinition]:
    """Return tools of LlamaIndex for Interlock's own `Agent`, with options such as `risk="read"`."""

    def convert(tool: AsyncBaseTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> Any:
            output = await tool.acall(**arguments)
            if output.is_error:
                raise RuntimeError(output.content)
            return output.content

        meta = tool.metadata
        return tool_from_schema(meta.get_name(), meta.description or "", meta.get_parameters_dict(), call, **options)

    return [convert(adapt_to_async_tool(tool)) for tool in tools]


class _OwnTool(AsyncBaseTool):
    """A tool of Interlock."""

    def __init__(self, definition: ToolDefinition) -> None:
        self._metadata = _OwnMetadata(definition.spec.description, definition.name)
        self._metadata.parameters = dict(definition.spec.parameters_schema)

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        raise ConfigurationError("This tool runs behind a gate. Use it in an agent of an interlocked class.")

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        return self.call()


class _OwnMetadata(ToolMetadata):
    parameters: JsonObject

    def get_parameters_dict(self) -> JsonObject:
        return self.parameters


async def _call(  # noqa: PLR0913, PLR0917 - what a step knows of a call
    gate: Gate, ctx: Context, tool: AsyncBaseTool, arguments: JsonObject, agent: str, call_tool: Callable[..., Any]
) -> ToolOutput:
    is_own = isinstance(tool, _OwnTool)
    name, meta = tool.metadata.get_name(), tool.metadata
    if not is_own:
        gate.declare(name, meta.description or "", meta.get_parameters_dict(), source=_FRAMEWORK)
    outputs: list[ToolOutput] = []

    async def execute(permitted: JsonObject) -> Any:
        output = await call_tool(ctx, tool, permitted)
        if output.is_error:
            raise RuntimeError(output.content)
        outputs.append(output)
        return output.content

    call_id = _CALL_ID.get()
    settled = await gate.call(
        "",
        ToolIntent(call_id=call_id, tool_name=name, arguments=arguments),
        None if is_own else execute,
        suspends=(WaitingForEvent,),
        agent=agent,
        framework=_FRAMEWORK,
    )
    key = f"interlock:{call_id}"
    if settled.question is not None:
        await _wait(ctx, settled.question, key)
    if waiter_id := await ctx.store.get(key, default=""):
        with suppress(WaitingForEvent):  # ends the wait: else it is continued again at the next pause
            await ctx.wait_for_event(ContinueEvent, waiter_id=waiter_id)
    if outputs and settled.result is settled.value:
        return outputs[0]
    result = settled.result
    return ToolOutput(
        content=str(result), tool_name=name, raw_input=arguments, raw_output=result, is_error=not settled.ok
    )


async def _wait(ctx: Context, question: Question, key: str) -> NoReturn:
    """Pause the step. It runs again when it is continued."""
    await ctx.store.set(key, question.action_id)
    asked = InputRequiredEvent(prefix=question.prompt, **describe_question(question))
    # Without requirements: the framework would run a step that has some twice when its state is restored.
    await ctx.wait_for_event(ContinueEvent, asked, question.action_id, timeout=None)
    ctx.write_event_to_stream(asked)  # it was continued too early
    raise WaitingForEvent(AddWaiter(waiter_id=question.action_id, event_type=ContinueEvent))


def _check_coverage(workflow: Any) -> None:
    for agent in getattr(workflow, "agents", {"": workflow}).values():
        if isinstance(agent, CodeActAgent):
            raise ConfigurationError(f"Agent {agent.name!r} executes code, which the gate cannot govern.")
        if any(getattr(agent.llm, name, None) for name in _HOSTED):
            raise ConfigurationError(
                f"The provider executes built-in tools of agent {agent.name!r}: the gate cannot govern them."
            )
