"""pydantic-ai: every tool of an agent passes the gate, and a question is the framework's own `DeferredToolRequests`.

agent = Agent(..., output_type=[str, DeferredToolRequests], capabilities=[Interlocked(gate)])
result = await agent.run("Refund order 7.", conversation_id="ticket-42")
result = await agent.run(message_history=history, deferred_tool_results=answers(history))  # after a pause
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

from pydantic import ValidationError
from pydantic_ai import FunctionToolset, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, describe_question
from ..gate.named_run import join_run_id
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "pydantic-ai"
#: Begins the id of a conversation that got none: a random one would not be found again after a crash.
_UNNAMED = "unnamed-"
#: Marks Interlock's own tools: they pass the gate themselves.
_OWN = "interlock"
#: Tools that a provider knows, but that only find tools or that this program runs.
_LOCAL = ("tool_search", "memory")


@dataclass
class Interlocked(AbstractCapability[Any]):
    """Govern every function tool and toolset of an agent."""

    gate: Gate

    def get_ordering(self) -> CapabilityOrdering:
        """Place the gate next to the tools: no other capability changes arguments behind it."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Put the gate in front of the tools."""
        return _GovernedToolset(toolset, self.gate)

    def get_default_conversation_id(self, run_id: str) -> str:
        """Return an id that no program gives: such a conversation is refused at its first call."""
        return f"{_UNNAMED}{run_id}"

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Release the run when the agent is done or pauses."""
        try:
            return await handler()
        finally:
            if run_id := _run_id(ctx):
                await self.gate.release(run_id)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Refuse tools that the provider runs: their calls never reach the gate."""
        supported = tuple(request_context.model.profile.get("supported_native_tools", (AbstractNativeTool,)))
        for tool in request_context.model_request_parameters.native_tools:
            if isinstance(tool, supported) and tool.kind not in _LOCAL:
                raise ConfigurationError(
                    f"The provider runs {tool.kind!r} itself, so its calls cannot be governed. "
                    "Remove it, or use a tool that runs in this program."
                )
        return request_context


@dataclass
class _GovernedToolset(WrapperToolset[Any]):
    gate: Gate

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        for name, tool in tools.items():
            definition = tool.tool_def
            if definition.kind != "function":
                raise ConfigurationError(
                    f"Tool {name!r} is deferred by pydantic-ai itself ({definition.kind}). "
                    "Interlock asks about calls: declare it without `requires_approval`, as a tool that runs here."
                )
            if not self._is_own(tool):
                schema = definition.parameters_json_schema
                self.gate.declare(name, definition.description or "", schema, source=_FRAMEWORK)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call_tool = super().call_tool
        if self._is_own(tool):
            return await call_tool(name, tool_args, ctx, tool)
        sent = _arguments_as_json(name, tool_args, ctx, tool)

        async def execute(arguments: JsonObject) -> Any:
            runs = tool_args if arguments == sent else _validate(arguments, ctx, tool)  # a person may edit them
            return await call_tool(name, runs, ctx, tool)

        return await _settle(self.gate, ctx, name, sent, execute)

    def _is_own(self, tool: ToolsetTool[Any]) -> bool:
        return (tool.tool_def.metadata or {}).get(_OWN) is self.gate


def answers(history: Sequence[ModelMessage]) -> DeferredToolResults | None:
    """Return the `deferred_tool_results` that continue a paused conversation; None when nothing is open.

    They approve nothing: every open call is put to the gate again, and the log says what people answered.
    """
    closed = {getattr(part, "tool_call_id", None) for item in history if item.kind == "request" for part in item.parts}
    last = next((item for item in reversed(history) if isinstance(item, ModelResponse)), None)
    calls = [] if last is None else [part.tool_call_id for part in last.parts if isinstance(part, ToolCallPart)]
    waiting = [call_id for call_id in calls if call_id not in closed]
    return DeferredToolResults(approvals=dict.fromkeys(waiting, True)) if waiting else None


def interlock_tools(gate: Gate, *tools: Any) -> FunctionToolset[Any]:
    """Return Interlock's own tools, such as `LocalTools(".")`, as a toolset: `Agent(toolsets=[...])`."""

    def make(definition: ToolDefinition) -> Tool[Any]:
        async def call(ctx: RunContext[Any], **arguments: Any) -> Any:
            return await _settle(gate, ctx, definition.name, arguments)

        spec = definition.spec
        return Tool.from_schema(call, definition.name, spec.description, spec.parameters_schema, takes_ctx=True)

    return FunctionToolset([make(definition) for definition in gate.tools(*tools)], metadata={_OWN: gate})


def tools(
    items: Iterable[Tool[Any] | Callable[..., Any]], *, deps: Any = None, **options: Unpack[ToolOptions]
) -> list[ToolDefinition]:
    """Return tools of pydantic-ai for Interlock's `Agent`, with the options of `interlock.tool`."""

    def make(item: Tool[Any]) -> ToolDefinition:
        schema = item.function_schema

        async def handler(arguments: JsonObject, context: ToolContext) -> Any:
            ctx = RunContext(deps=deps, model=TestModel(), usage=RunUsage(), tool_call_id=context.call_id)
            return await schema.call(schema.validator.validate_python(arguments), ctx)

        return tool_from_schema(item.name, item.description or "", schema.json_schema, handler, **options)

    return [make(item if isinstance(item, Tool) else Tool(item)) for item in items]


async def _settle(
    gate: Gate,
    ctx: RunContext[Any],
    name: str,
    arguments: JsonObject,
    execute: Callable[[JsonObject], Awaitable[Any]] | None = None,
) -> Any:
    response, _ = _find_call(ctx)
    # A model may use an id again in a later message.
    call_id = f"{ctx.tool_call_id}@{response.timestamp.timestamp() * 1e6:.0f}" if response else str(ctx.tool_call_id)
    settled = await gate.call(
        _run_id(ctx),
        ToolIntent(call_id=call_id, tool_name=name, arguments=arguments),
        execute,
        suspends=(ApprovalRequired, CallDeferred),
        passes=(ModelRetry, ToolFailed, AgentRunError, UserError),
        agent=(ctx.agent.name if ctx.agent else None) or "",
        framework=_FRAMEWORK,
    )
    if settled.question is not None:
        raise ApprovalRequired(metadata=describe_question(settled.question))
    if not settled.ok:
        raise ToolFailed(settled.text)
    return settled.result


def _run_id(ctx: RunContext[Any]) -> str:
    """Return the run of the conversation; empty for one without an id: then `gate.run` has to name it."""
    conversation = ctx.conversation_id or _UNNAMED
    return "" if conversation.startswith(_UNNAMED) else join_run_id("pai", conversation)


def _find_call(ctx: RunContext[Any]) -> tuple[ModelResponse | None, ToolCallPart | None]:
    """Return the message of the model that has the call, and the call as the model sent it."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            calls = (part for part in message.parts if isinstance(part, ToolCallPart))
            return message, next((part for part in calls if part.tool_call_id == ctx.tool_call_id), None)
    return None, None


def _validate(arguments: JsonObject, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    return tool.args_validator.validate_python(arguments, context=ctx.validation_context)


def _arguments_as_json(
    name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> JsonObject:
    """Return the JSON that stands for exactly these validated arguments: it is what is judged and shown."""
    _, part = _find_call(ctx)
    sent = None if part is None else part.args_as_dict()
    if sent == tool_args:
        return sent
    body = to_jsonable_python(tool_args, serialize_unknown=True)
    if len(body) == 1 and not body.keys() <= tool.tool_def.parameters_json_schema.get("properties", {}).keys():
        (body,) = body.values()  # one model is the only parameter: the schema is the one of the model
    for candidate in (body, sent):
        with suppress(ValidationError):
            if candidate is not None and _validate(candidate, ctx, tool) == tool_args:
                return candidate
    raise ConfigurationError(f"The arguments of {name} have no JSON form to decide about. Nothing was executed.")
