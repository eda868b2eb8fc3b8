"""LangChain and LangGraph agents behind a gate, deepagents included.

    gate = Gate("state", risk={"search": "read"})
    agent = create_agent(model, tools, middleware=[Interlocked(gate)], checkpointer=saver)
    agent.invoke({"messages": messages}, {"configurable": {"thread_id": "ticket-42"}})

Where a person has to answer, the graph is interrupted; after the answer `agent.invoke(None, config)` continues it. What
an interrupt is resumed with is never read: the log says what was answered.
"""

import re
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Unpack
from urllib.parse import unquote

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tracers.context import register_configure_hook
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, Settled, describe_question
from ..gate.named_run import join_run_id
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema
from ..rendering.values import as_text

_FRAMEWORK = "langchain"
_CHILD_IDS = re.compile(r"(\.[0-9a-f]{12})+$")


class Interlocked(AgentMiddleware):
    """Take every tool call of the agent through the gate. Put it last, so that it is next to the tools.

    In a graph without `create_agent`, give its `wrap_tool_call` and `awrap_tool_call` to the `ToolNode`.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        self.declared: dict[str, BaseTool] = {}

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Take a call through the gate, in the thread that makes it."""
        call = _Call(self, request)

        def execute(arguments: JsonObject) -> Any:
            with call.executing(arguments) as permitted:
                call.response = handler(permitted)
            return call.value()

        while True:
            settled = self.gate.call_sync(call.run_id, call.intent, execute if call.foreign else None, **call.options)
            if settled.question is None:
                return call.answer(settled)
            interrupt(describe_question(settled.question))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Take a call through the gate."""
        call = _Call(self, request)

        async def execute(arguments: JsonObject) -> Any:
            with call.executing(arguments) as permitted:
                call.response = await handler(permitted)
            return call.value()

        while True:
            settled = await self.gate.call(call.run_id, call.intent, execute if call.foreign else None, **call.options)
            if settled.question is None:
                return call.answer(settled)
            interrupt(describe_question(settled.question))

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        """Refuse what the gate would not see, before the model is asked."""
        _check_coverage(request)
        return handler(request)

    async def awrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[Any]]) -> Any:
        """Refuse what the gate would not see, before the model is asked."""
        _check_coverage(request)
        return await handler(request)

    def after_agent(self, state: Any, runtime: Runtime) -> None:
        """Release the run: any process may continue the conversation."""
        if run_id := _ended_run(runtime):
            self.gate.release_sync(run_id)

    async def aafter_agent(self, state: Any, runtime: Runtime) -> None:
        """Release the run: any process may continue the conversation."""
        if run_id := _ended_run(runtime):
            await self.gate.release(run_id)


class _Call:
    """One call of a tool, and what the tool returned."""

    def __init__(self, interlocked: Interlocked, request: ToolCallRequest) -> None:
        self.request, self.call, tool = request, request.tool_call, request.tool
        self.foreign = not isinstance(tool, _OwnTool)
        if tool is not None and self.foreign and interlocked.declared.get(tool.name) is not tool:
            for each in (*request.runtime.tools, tool):
                if not isinstance(each, _OwnTool):
                    interlocked.gate.declare(each.name, each.description, _schema(each), source=_FRAMEWORK)
                    interlocked.declared[each.name] = each
        config = request.runtime.config
        self.run_id = _run_id(config)
        call_id = f"{self.call['id']}@{_message_id(request)}"
        self.intent = ToolIntent(call_id=call_id, tool_name=self.call["name"], arguments=self.call["args"])
        self.options: dict[str, Any] = {
            "suspends": (GraphBubbleUp,),
            "passes": (ConfigurationError,),
            "agent": config.get("metadata", {}).get("lc_agent_name") or "",
            "framework": _FRAMEWORK,
        }
        if config["configurable"].get("__pregel_checkpointer") is None:
            warnings.warn("Without a checkpointer the agent cannot pause: calls wait for their approval.", stacklevel=2)
            self.options["waits"] = "inline"
        self.response: Any = None

    @contextmanager
    def executing(self, arguments: JsonObject) -> Iterator[ToolCallRequest]:
        """Let this tool run, and no other one that a model calls inside it."""
        nested, expected = _NESTED.set(_NESTED_CALLS), _EXPECTED.set([self.call["id"]])
        try:
            yield self.request.override(tool_call={**self.call, "args": arguments})
        except ParentCommand as error:  # a graph inside the tool hands over to this one: it succeeded
            self.response = error
        finally:
            _NESTED.reset(nested)
            _EXPECTED.reset(expected)

    def value(self) -> Any:
        """Return what the tool returned, without the framework's message around it."""
        message = self._message()
        if message is None:
            return "The tool handed over to another part of the graph."
        if message.status == "error":
            raise ToolException(message.text)
        return message.content

    def answer(self, settled: Settled) -> Any:
        """Return what the agent gets: the tool's own response, or a message with what was recorded."""
        if isinstance(self.response, ParentCommand):
            raise self.response
        result = settled.result
        content = result if isinstance(result, str | list) and self.foreign else as_text(result)[0]
        if settled.ok and self.response is not None:
            message = self._message()
            if message is not None:  # secrets are redacted
                message.content = content
            return self.response
        status = "success" if settled.ok else "error"
        return ToolMessage(content, tool_call_id=self.call["id"], name=self.call["name"], status=status)

    def _message(self) -> ToolMessage | None:
        """Return the message for the model in the tool's response, which may be a command or several."""
        for item in self.response if isinstance(self.response, list) else [self.response]:
            inside = (
                item.update.get("messages", ()) if isinstance(item, Command) and isinstance(item.update, dict) else ()
            )
            for message in (item, *inside):
                if isinstance(message, ToolMessage) and message.tool_call_id == self.call["id"]:
                    return message
        return None


class _NestedCalls(BaseCallbackHandler):
    """Refuse tools that a model calls inside a tool, past the gate: the agent there has no middleware."""

    raise_error = run_inline = True

    def on_tool_start(self, serialized: Any, input_str: str, *, tool_call_id: str | None = None, **more: Any) -> None:
        """Let the tool start that the gate executes now, once."""
        expected = _EXPECTED.get()
        if tool_call_id is not None and (not expected or expected.pop() != tool_call_id):
            name = (serialized or {}).get("name")
            raise ConfigurationError(f"An agent inside a tool calls {name!r} past the gate. Give it Interlocked(gate).")


#: The call whose tool may start.
_EXPECTED: ContextVar[list[str | None]] = ContextVar("interlock_expected_call")
_NESTED: ContextVar[_NestedCalls | None] = ContextVar("interlock_nested_calls", default=None)
_NESTED_CALLS = _NestedCalls()
register_configure_hook(_NESTED, inheritable=True)


class _OwnTool(StructuredTool):
    """A tool of Interlock: the gate executes it."""


def interlock_tools(gate: Gate, *tools: Any) -> list[BaseTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for an agent that has `Interlocked(gate)`."""

    def refuse(**arguments: Any) -> None:
        raise ConfigurationError("This tool runs behind a gate. Give the agent Interlocked(gate) as middleware.")

    return [
        _OwnTool(name=tool.name, description=spec.description, args_schema=dict(spec.parameters_schema), func=refuse)
        for tool in gate.tools(*tools)
        for spec in (tool.spec,)
    ]


def tools(tools: Iterable[BaseTool], **options: Unpack[ToolOptions]) -> list[ToolDefinition]:
    """Return tools of LangChain as tools for Interlock's own `Agent`, with options such as `risk="read"`."""

    def convert(tool: BaseTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> Any:
            return await tool.ainvoke(arguments)

        return tool_from_schema(tool.name, tool.description, _schema(tool), call, **options)

    return [convert(tool) for tool in tools]


def interlocked_subagents(gate: Gate, subagents: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the subagents of a deep agent with the gate in each, for `create_deep_agent(subagents=...)`.

    The one that deepagents adds by itself is among them. One that is compiled already needs the middleware inside.
    """
    from deepagents.middleware.subagents import GENERAL_PURPOSE_SUBAGENT  # noqa: PLC0415 - only for deepagents

    specs = [dict(spec) for spec in subagents]
    if not any(spec["name"] == GENERAL_PURPOSE_SUBAGENT["name"] for spec in specs):
        specs.insert(0, dict(GENERAL_PURPOSE_SUBAGENT))
    for spec in specs:
        if "graph_id" in spec:
            raise ConfigurationError(
                f"Subagent {spec['name']!r} runs on another server: the gate never sees its calls."
            )
        if "runnable" not in spec:
            spec["middleware"] = [*spec.get("middleware", ()), Interlocked(gate)]
    return specs


def thread_config(run_id: str) -> dict[str, Any]:
    """Return the config of the thread that a run belongs to: `agent.invoke(None, config)` continues it."""
    root = _CHILD_IDS.sub("", run_id)
    if not root.startswith("lg:") or "~" in root:
        raise ConfigurationError(f"{run_id} does not say which thread it belongs to.")
    return {"configurable": {"thread_id": unquote(root.removeprefix("lg:"))}}


def _run_id(config: Mapping[str, Any]) -> str:
    thread = config["configurable"].get("thread_id")
    return join_run_id("lg", str(thread)) if thread else ""


def _ended_run(runtime: Runtime) -> str:
    """Return the run that ends with the agent. An agent inside a graph is not the end of its run."""
    return "" if "|" in runtime.execution_info.checkpoint_ns else _run_id(get_config())


def _message_id(request: ToolCallRequest) -> str:
    """Return the difference between two calls with the same id: the model's message, else the task of the graph."""
    state = request.state
    found = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    messages = state if isinstance(state, list) else found or ()
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(call["id"] == request.tool_call["id"] for call in message.tool_calls):
            return message.id or request.runtime.execution_info.task_id
    return request.runtime.execution_info.task_id


def _schema(tool: BaseTool) -> dict[str, Any]:
    schema = tool.tool_call_schema
    return schema if isinstance(schema, dict) else schema.model_json_schema()


def _check_coverage(request: ModelRequest) -> None:
    for tool in request.tools:
        if isinstance(tool, dict) and tool.get("type", "function") not in ("function", "custom"):
            raise ConfigurationError(
                f"{tool['type']!r} runs at the model's provider, so the gate never sees its calls. Remove this tool."
            )
    read = get_config()["configurable"].get("__pregel_read")
    if any("HumanInTheLoopMiddleware" in channel for channel in getattr(read, "args", ((), ()))[1]):
        raise ConfigurationError("HumanInTheLoopMiddleware is a second approval beside the gate's. Remove it.")
