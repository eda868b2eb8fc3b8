"""Strands: a plugin puts the gate in front of every tool of an agent.

agent = Agent(tools=[refund], session_manager=FileSessionManager("ticket-42"), plugins=[Interlocked(gate)])
result = agent("Refund order 7.")
result = agent(answers(agent))  # after a pause
"""

from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any, Unpack

from pydantic_core import to_jsonable_python
from strands import Agent
from strands.hooks import AfterInvocationEvent, AfterToolCallEvent, BeforeInvocationEvent
from strands.interrupt import InterruptException
from strands.middleware import ExecuteToolStage
from strands.middleware.stages import ExecuteToolContext
from strands.plugins import Plugin, hook
from strands.types.events import ToolResultEvent
from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse

from ..domain.call import Question, ToolIntent
from ..domain.errors import ConfigurationError, InterlockError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, describe_question
from ..gate.named_run import join_run_id
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "strands"
_NAME = "interlock:"
#: Fields in the configuration of a model whose tools the provider executes.
_HOSTED = ("anthropic_tools", "gemini_tools", "tools")


class _ToolPausesError(Exception):
    """The tool itself asks the user for something, or an agent in it does."""


class Interlocked(Plugin):
    """Govern every tool call of an agent."""

    name = "interlock"

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def init_agent(self, agent: Agent) -> None:
        """Put the gate in front of the tools."""
        agent.add_middleware(ExecuteToolStage, self._call)

    @hook
    def check_coverage(self, event: BeforeInvocationEvent) -> None:
        """Refuse what the gate never sees, and a second approval."""
        config: Any = event.agent.model.get_config()
        config = config if isinstance(config, dict) else {}
        for fields in (config, config.get("params") or {}):
            if hosted := [name for name in _HOSTED if fields.get(name)]:
                raise ConfigurationError(
                    f"The provider executes {hosted[0]}: the gate cannot govern them. Remove them."
                )
        registry = getattr(event.agent, "_intervention_registry", None)
        for handler in getattr(registry, "_handlers", ()):
            if type(handler).__name__ == "HumanInTheLoop":
                raise ConfigurationError("HumanInTheLoop is a second approval beside the gate's. Remove it.")
        wraps = [one.handler for one in _find_handlers(event.agent) if one.phase == "wrap"]
        for behind in wraps[wraps.index(self._call) + 1 :]:
            if not behind.__module__.startswith("strands."):
                raise ConfigurationError(
                    "There is middleware behind the gate, which could change a call. Add it before: "
                    "agent.add_middleware(ExecuteToolStage.Input, ...), or a plugin in front of Interlocked."
                )

    @hook
    def raise_errors(self, event: AfterToolCallEvent) -> None:
        """Raise an error of the gate: the framework would show it to the model as a result of the tool."""
        if isinstance(event.exception, InterlockError):
            raise event.exception

    @hook
    async def release(self, event: AfterInvocationEvent) -> None:
        """Let other processes continue the run."""
        if run_id := _find_run_id(event.agent):
            await self._gate.release(run_id)

    async def _call(
        self, context: ExecuteToolContext, next_fn: Callable[[ExecuteToolContext], Any]
    ) -> AsyncIterator[Any]:
        tool, use = context.tool, context.tool_use
        if tool is None or tool.tool_type == "structured_output":  # an unknown name; the answer of the agent
            async for event in next_fn(context):
                yield event
            return
        is_own = isinstance(tool, _OwnTool)
        if not is_own:
            spec = tool.tool_spec
            schema = spec["inputSchema"].get("json", spec["inputSchema"])
            self._gate.declare(spec["name"], spec["description"], schema, source=_FRAMEWORK)
        events: list[Any] = []
        sent = _read_json(use["input"])

        async def execute(arguments: JsonObject) -> Any:
            edited = {**use, "input": use["input"] if arguments == sent else arguments}  # a person may edit them
            return await _run_tool(next_fn(context.replace(tool_use=edited)), events)

        message = _find_message(context.agent, use["toolUseId"])
        try:
            settled = await self._gate.call(
                _find_run_id(context.agent),
                # A model may use an id again in a later message.
                ToolIntent(call_id=f"{use['toolUseId']}@{message}", tool_name=use["name"], arguments=sent),
                None if is_own else execute,
                suspends=(_ToolPausesError, InterruptException),
                agent=context.agent.name,
                framework=_FRAMEWORK,
            )
        except _ToolPausesError:
            settled = None
        if settled is not None and settled.question is not None:
            _pause(context, settled.question)
        if settled is None or (settled.ran and settled.result is settled.value):
            for event in events:
                yield event
        else:
            result = settled.result
            content = {"text": result} if isinstance(result, str) else {"json": result}
            status = "success" if settled.ok else "error"
            yield ToolResultEvent({"toolUseId": use["toolUseId"], "status": status, "content": [content]})


def answers(agent: Agent) -> list[dict[str, Any]] | None:
    """Return the prompt that continues a paused agent; None when nothing was asked.

    It approves nothing: every open call is put to the gate again, and the log says what people answered.
    """
    state = agent.take_snapshot(include=["interrupt_state"]).data["interrupt_state"]
    asked = [one["id"] for one in state["interrupts"].values() if one["name"].startswith(_NAME)]
    return [{"interruptResponse": {"interruptId": one, "response": True}} for one in asked] or None


def interlock_tools(gate: Gate, *tools: Any) -> list[AgentTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for an agent that has `Interlocked(gate)`."""
    return [_OwnTool(definition) for definition in gate.tools(*tools)]


def tools(tools: Iterable[AgentTool], **options: Unpack[ToolOptions]) -> list[ToolDefinition]:
    """Return tools of Strands for Interlock's own `Agent`, with options such as `risk="read"`."""

    def convert(tool: AgentTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> Any:
            use: ToolUse = {"toolUseId": context.call_id, "name": tool.tool_name, "input": arguments}
            events = [event async for event in tool.stream(use, {})]
            result = events[-1].tool_result if isinstance(events[-1], ToolResultEvent) else events[-1]
            if result["status"] == "error":
                raise RuntimeError(str(_read_value(result["content"])))
            return _read_value(result["content"])

        spec = tool.tool_spec
        schema = spec["inputSchema"].get("json", spec["inputSchema"])
        return tool_from_schema(tool.tool_name, spec["description"], schema, call, **options)

    return [convert(tool) for tool in tools]


class _OwnTool(AgentTool):
    """A tool of Interlock."""

    tool_type = "interlock"

    def __init__(self, definition: ToolDefinition) -> None:
        super().__init__()
        self._definition = definition

    @property
    def tool_name(self) -> str:
        return self._definition.name

    @property
    def tool_spec(self) -> ToolSpec:
        spec = self._definition.spec
        schema = {"json": dict(spec.parameters_schema)}
        return {"name": self.tool_name, "description": spec.description, "inputSchema": schema}

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any) -> ToolGenerator:
        raise ConfigurationError("This tool runs behind a gate. Give the agent Interlocked(gate) as a plugin.")
        yield


async def _run_tool(stream: Any, events: list[Any]) -> Any:
    """Run a tool to its end, keep its events, and return its result."""
    try:
        async for event in stream:
            events.append(event)
    finally:
        await stream.aclose()
    if any("tool_interrupt_event" in event for event in events):
        raise _ToolPausesError
    result = next(event.tool_result for event in reversed(events) if isinstance(event, ToolResultEvent))
    value = _read_value(result["content"])
    if result["status"] == "error":
        raise RuntimeError(str(value))
    return value


def _find_run_id(agent: Any) -> str:
    """Return the run of the agent in its session; empty without a session: then `gate.run` has to name it."""
    session_id = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    return join_run_id("st", session_id, agent.agent_id) if session_id else ""


def _find_message(agent: Any, call_id: str) -> str:
    """Return the stored id of the model's message that has the call."""
    for message in reversed(agent.messages):
        if any(block.get("toolUse", {}).get("toolUseId") == call_id for block in message["content"]):
            return str(message.get("tracking_id") or "")
    return ""


def _find_handlers(agent: Any) -> list[Any]:
    return agent._middleware_registry._handlers.get(ExecuteToolStage, [])


def _pause(context: ExecuteToolContext, question: Question) -> None:
    for at in count():  # one that the framework has a response for does not pause: the question is still open
        context.interrupt(f"{_NAME}{question.action_id}:{at}", reason=describe_question(question))


def _read_value(content: list[Any]) -> Any:
    """Return what the log keeps of a result: the text, else the parts."""
    if all(set(part) == {"text"} for part in content):
        return "\n".join(part["text"] for part in content)
    if len(content) == 1 and set(content[0]) == {"json"}:
        return content[0]["json"]
    return _read_json(content)


def _read_json(value: Any) -> Any:
    return to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
