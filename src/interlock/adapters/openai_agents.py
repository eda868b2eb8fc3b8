"""OpenAI Agents: every tool of an agent passes the gate, and a question is the framework's own interruption.

agent = interlocked(agent, gate)
async with gate.run("ticket-42"):
    result = await Runner.run(agent, "Refund order 7.")
    result = await Runner.run(agent, await answered(gate, result.to_state()))  # after a pause
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Unpack

from agents import Agent, FunctionTool, Handoff, RunContextWrapper, RunState, Tool, ToolSearchTool
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.tool_context import ToolContext

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError, RunPausedError
from ..domain.tool import JsonObject, ToolDefinition
from ..domain.tool import ToolContext as InterlockContext
from ..gate.gate import Gate
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "openai-agents"


def interlocked(agent: Agent[Any], gate: Gate) -> Agent[Any]:
    """Return the agent with its tools, MCP servers and the agents that it hands off to behind the gate.

    Raises:
        ConfigurationError: It has something that cannot be governed; here, or when the agent lists its tools.
    """
    return _govern_agent(agent, gate, {})


async def answered(gate: Gate, state: RunState[Any]) -> RunState[Any]:
    """Let calls continue that people answered, inside `gate.run`. The others stay interrupted.

    It approves nothing: each of these calls is put to the gate again, and the log says what people decided.
    """
    waiting = {asked.call_id for asked in await gate.questions(gate.current_run().run_id)}
    for item in state.get_interruptions():
        if item.call_id not in waiting:
            state.approve(item)
    return state


def interlock_tools(gate: Gate, *tools: Any) -> list[FunctionTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for the tools of an agent that is `interlocked`."""

    async def refuse(context: ToolContext[Any], text: str) -> Any:
        raise ConfigurationError("This tool of Interlock needs an agent behind the gate: `interlocked(agent, gate)`.")

    specs = [definition.spec for definition in gate.tools(*tools)]
    return [
        _OwnTool(spec.name, spec.description, spec.parameters_schema, refuse, strict_json_schema=False)
        for spec in specs
    ]


def tools(items: Iterable[FunctionTool], **options: Unpack[ToolOptions]) -> list[ToolDefinition]:
    """Return tools of OpenAI Agents for Interlock's `Agent`, with the options of `interlock.tool`."""

    def make(item: FunctionTool) -> ToolDefinition:
        _refuse_second_approval(item)
        invoke = _raising(item).on_invoke_tool

        async def handler(arguments: JsonObject, context: InterlockContext) -> Any:
            text = json.dumps(arguments)
            ids = {"tool_name": item.name, "tool_call_id": context.call_id, "tool_arguments": text}
            return await invoke(ToolContext(None, **ids), text)

        return tool_from_schema(item.name, item.description, item.params_json_schema, handler, **options)

    return [make(item) for item in items]


@dataclass
class _GovernedAgent(Agent[Any]):
    gate: Gate | None = None
    #: By name: a tool of the framework, and the one in front of it.
    _governed: dict[str, tuple[FunctionTool, FunctionTool]] = field(default_factory=dict, init=False, repr=False)

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """Return the tools behind the gate, those of MCP servers, too."""
        if self.gate is None:
            raise ConfigurationError("A governed agent needs its gate.")
        for item in self.handoffs:
            _check_governed(_target(item), f"The handoff {getattr(item, 'name', '') or item.agent_name!r}")
        return [self._govern(tool, self.gate) for tool in await super().get_all_tools(run_context)]

    def _govern(self, tool: Tool, gate: Gate) -> Tool:
        if isinstance(tool, ToolSearchTool):
            return tool
        if not isinstance(tool, FunctionTool):
            raise ConfigurationError(
                f"The calls of {type(tool).__name__} do not reach the gate, so they cannot be governed. "
                "Remove it, or use a function tool."
            )
        if getattr(tool, "_is_agent_tool", False):
            _check_governed(getattr(tool, "_agent_instance", None), f"The agent in tool {tool.name!r}")
        known = self._governed.get(tool.qualified_name)
        if known is None or known[0] is not tool:
            known = self._governed[tool.qualified_name] = (tool, _govern_tool(tool, gate, self.name))
        return known[1]


@dataclass
class _OwnTool(FunctionTool):
    """A tool that Interlock executes."""


class _InnerPause(Exception):
    """An agent inside a tool is interrupted."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _govern_agent(agent: Agent[Any], gate: Gate, seen: dict[int, Agent[Any]]) -> Agent[Any]:
    if isinstance(agent, _GovernedAgent):
        return agent
    if type(agent) is not Agent:
        raise ConfigurationError(f"{type(agent).__name__} {agent.name!r} cannot be governed; only a plain Agent can.")
    if id(agent) not in seen:
        values = {item.name: getattr(agent, item.name) for item in fields(agent) if item.init}
        governed = seen[id(agent)] = _GovernedAgent(**values, gate=gate)
        governed.handoffs = [
            _govern_agent(item, gate, seen) if isinstance(item, Agent) else item for item in agent.handoffs
        ]
    return seen[id(agent)]


def _target(item: Agent[Any] | Handoff[Any, Any]) -> Any:
    reference = getattr(item, "_agent_ref", None)
    return item if isinstance(item, Agent) else reference and reference()


def _check_governed(agent: Any, what: str) -> None:
    if not isinstance(agent, _GovernedAgent):
        raise ConfigurationError(f"{what} is not governed: give it `interlocked(agent, gate)`.")


def _refuse_second_approval(tool: FunctionTool) -> None:
    if tool.needs_approval:
        raise ConfigurationError(f"Tool {tool.name!r} has `needs_approval`. Interlock asks about calls: remove it.")


def _raising(tool: FunctionTool) -> FunctionTool:
    """Return the tool without the text that hides its exceptions: they are recorded as failures."""
    return replace(tool, _failure_error_function=None, _use_default_failure_error_function=False)


def _govern_tool(tool: FunctionTool, gate: Gate, agent: str) -> FunctionTool:
    _refuse_second_approval(tool)
    name = tool.qualified_name
    is_own = isinstance(tool, _OwnTool)
    if not is_own:
        gate.declare(name, tool.description, tool.params_json_schema, source=_FRAMEWORK)
    raises = not tool._use_default_failure_error_function and tool._failure_error_function is None
    invoke = _raising(tool).on_invoke_tool

    async def needs_approval(context: RunContextWrapper[Any], arguments: JsonObject, call_id: str) -> bool:
        intent = ToolIntent(call_id=call_id, tool_name=name, arguments=arguments)
        return (await gate.judge("", intent, agent=agent, framework=_FRAMEWORK)).verdict == "ask"

    async def on_invoke_tool(context: ToolContext[Any], text: str) -> Any:
        try:
            sent = json.loads(text or "{}")
        except ValueError:
            sent = text

        async def execute(arguments: JsonObject) -> Any:
            value = await invoke(context, text if arguments == sent else json.dumps(arguments))
            inner = context.tool_call and peek_agent_tool_run_result(
                context.tool_call, scope_id=get_agent_tool_state_scope(context)
            )
            if getattr(inner, "interruptions", None):
                raise _InnerPause(value)
            return value

        intent = ToolIntent(call_id=context.tool_call_id, tool_name=name, arguments=sent)
        try:
            settled = await gate.call(
                "",
                intent,
                None if is_own else execute,
                suspends=(_InnerPause,),
                passes=(Exception,) if raises else (),
                agent=agent,
                framework=_FRAMEWORK,
            )
        except _InnerPause as pause:
            return pause.value
        if (asked := settled.question) is not None:
            raise RunPausedError(
                f"{name} waits for an answer to {asked.action_id}. Nothing was executed. "
                "Continue with `answered(gate, state)`; an approval of the framework alone does not count."
            )
        return settled.result

    return replace(tool, on_invoke_tool=on_invoke_tool, needs_approval=needs_approval)
