"""Google ADK: a plugin puts the gate in front of every tool of a runner.

    gate = Gate("state", policy=load_policy("policy.yaml"), risk={"search": "read"})
    app = App(name="shop", root_agent=agent, plugins=[Interlocked(gate)])

A call that a person has to approve pauses the run with ADK's own request for confirmation. To continue:

    message = await confirmations(gate, session)  # None while a question is open, or when nothing was asked

The run in the log is `adk:APP:USER:SESSION`, so the sessions have to be stored for a pause to outlive the process.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm.task._finish_task_tool import FinishTaskTool
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools import exit_loop
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from google.adk.workflow._errors import NodeInterruptedError
from google.genai import types

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject, ToolDefinition
from ..domain.tool import ToolContext as CallContext
from ..gate.gate import Gate, describe_question
from ..gate.named_run import join_run_id
from ..registry.json_schema import tool_from_schema

_CONFIRM = "adk_request_confirmation"
#: Agents whose tools run elsewhere, by the name of the class: an import would need more packages.
_REMOTE = {"RemoteA2aAgent", "ManagedAgent", "LangGraphAgent"}
#: Fields of a tool in a request that are executed here. All others are executed by the provider.
_LOCAL = {"function_declarations", "computer_use"}
#: The session of the tool that the current code runs in.
_SESSION: ContextVar[str] = ContextVar("interlock_adk_session", default="")


class _ToolPausesError(Exception):
    """The tool itself asks the user for something. Its response is the argument."""


class Interlocked(BasePlugin):
    """Govern every tool call of a runner. The callbacks of the agent and of the plugins behind it are still called."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(name="interlock")
        self._gate = gate
        self._declared: dict[str, BaseTool] = {}
        self._early: set[str] = set()

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Hold back a confirmation while the question is open: ADK takes only one for each call."""
        given = {part.function_response.id for part in user_message.parts or () if part.function_response}
        asked = [one for request, one in _find_asked(invocation_context.session).items() if request in given]
        if not await _is_any_open(self._gate, asked):
            return None
        self._early.add(invocation_context.invocation_id)
        return types.UserContent("Is it approved?")

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        """End a run that was resumed too early."""
        if invocation_context.invocation_id not in self._early:
            return None
        self._early.discard(invocation_context.invocation_id)
        return types.ModelContent("It still waits for approval.")

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        """Refuse agents that execute what the gate does not see."""
        if getattr(agent, "code_executor", None) is not None:
            raise ConfigurationError(f"Agent {agent.name!r} has a code executor, which the gate cannot govern.")
        if any(base.__name__ in _REMOTE for base in type(agent).__mro__):
            raise ConfigurationError(f"The tools of agent {agent.name!r} run elsewhere: the gate cannot govern them.")

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Refuse tools that the provider executes."""
        for tool in llm_request.config.tools or ():
            hosted = set(tool.model_dump(exclude_none=True)) - _LOCAL if isinstance(tool, types.Tool) else None
            if hosted:
                raise ConfigurationError(f"The provider executes {', '.join(hosted)}: the gate cannot govern it.")

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Take the call through the gate, which executes the tool."""
        if type(tool) is BaseTool or _is_control(tool):  # ADK's stand-in for a name that no tool has
            return None
        answer = await self._run_later_callbacks(tool, tool_args, tool_context)
        if answer is not None:
            return answer
        if self._declared.get(tool.name) is not tool:
            self._gate.declare(tool.name, tool.description, _read_schema(tool), source="google-adk")
            self._declared[tool.name] = tool
        await _check_tool(tool, tool_args, tool_context)

        async def execute(arguments: JsonObject) -> Any:
            token = _SESSION.set(tool_context.session.id)
            try:
                value = await tool.run_async(args=arguments, tool_context=tool_context)
            finally:
                _SESSION.reset(token)
            actions = tool_context.actions
            if tool_context.function_call_id in {
                *actions.requested_tool_confirmations,
                *actions.requested_auth_configs,
            }:
                raise _ToolPausesError(value)
            return value

        try:
            value = await _call(self._gate, tool, tool_args, tool_context, execute)
        except _ToolPausesError as paused:
            value = paused.args[0]
        if value is None and tool.is_long_running:
            return {}  # the response comes later
        return value if isinstance(value, dict) else {"result": value}  # None would make ADK execute the tool

    async def _run_later_callbacks(self, tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return the first answer of callbacks that ADK calls only when this one answers nothing."""
        invocation = context.get_invocation_context()
        plugins = invocation.plugin_manager.plugins
        for plugin in plugins[plugins.index(self) + 1 :]:
            answer = await plugin.before_tool_callback(tool=tool, tool_args=arguments, tool_context=context)
            if answer is not None:
                return answer
        for callback in getattr(invocation.agent, "canonical_before_tool_callbacks", ()):
            answer = callback(tool=tool, args=arguments, tool_context=context)
            answer = await answer if isinstance(answer, Awaitable) else answer
            if answer is not None:
                return answer
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext, **_: Any) -> None:
        """Let other processes continue the run."""
        await self._gate.release(_find_run_id(invocation_context.session))

    on_run_error_callback = after_run_callback


async def confirmations(gate: Gate, session: Session) -> types.Content | None:
    """Return the message that continues a paused session, or None while a question is open or nothing was asked.

    What people answered is in the log: the message only makes ADK call the tools again.
    """
    asked = _find_asked(session)
    if not asked or await _is_any_open(gate, list(asked.values())):
        return None
    responses = [types.FunctionResponse(id=one, name=_CONFIRM, response={"confirmed": True}) for one in asked]
    return types.UserContent([types.Part(function_response=response) for response in responses])


def interlock_tools(gate: Gate, *tools: Any) -> list[BaseTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for an agent of ADK."""
    return [_InterlockTool(gate, definition) for definition in gate.tools(*tools)]


def tools(given: list[BaseTool], **options: Any) -> list[ToolDefinition]:
    """Return tools of ADK for Interlock's own `Agent`. The options are those of `tool`, such as `risk="read"`."""

    def convert(tool: BaseTool) -> ToolDefinition:
        async def handler(arguments: JsonObject, context: CallContext) -> Any:
            session = Session(id=context.run_id, app_name="interlock", user_id="interlock")
            sessions = InMemorySessionService()
            invocation = InvocationContext(invocation_id=context.call_id, session=session, session_service=sessions)
            tool_context = ToolContext(invocation, function_call_id=context.call_id)
            await _check_tool(tool, arguments, tool_context)
            return await tool.run_async(args=arguments, tool_context=tool_context)

        return tool_from_schema(tool.name, tool.description, _read_schema(tool), handler, **options)

    return [convert(tool) for tool in given]


class _InterlockTool(BaseTool):
    """A tool of Interlock in an agent of ADK."""

    def __init__(self, gate: Gate, definition: ToolDefinition) -> None:
        super().__init__(name=definition.name, description=definition.spec.description)
        self._gate = gate
        self._schema = definition.spec.parameters_schema

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return await _call(self._gate, self, args, tool_context, None)


async def _call(
    gate: Gate,
    tool: BaseTool,
    arguments: dict[str, Any],
    context: ToolContext,
    execute: Callable[[JsonObject], Awaitable[Any]] | None,
) -> Any:
    session, call_id = context.session, context.function_call_id
    calls = ((event, call) for event in reversed(session.events) for call in event.get_function_calls())
    # The same id in another message of the model is another call.
    qualified = next((f"{call_id}@{event.id}" for event, call in calls if call.id == call_id), call_id)
    settled = await gate.call(
        _find_run_id(session),
        ToolIntent(call_id=qualified, tool_name=tool.name, arguments=dict(arguments)),
        execute,
        # ADK discards the session of an agent that runs inside a tool: it cannot be continued after a pause.
        waits="inline" if _SESSION.get() not in ("", session.id) else "pause",
        suspends=(_ToolPausesError, NodeInterruptedError),
        agent=context.agent_name,
        framework="google-adk",
    )
    question = settled.question
    if question is None:
        return settled.result if settled.ok else {"error": settled.text}
    context.request_confirmation(hint=question.prompt, payload=describe_question(question))
    context.actions.skip_summarization = True
    return {"status": "It waits for approval."}


def _is_control(tool: BaseTool) -> bool:
    """Return True for a tool that only steers ADK, and for one of Interlock, which goes to the gate itself."""
    if isinstance(tool, (_InterlockTool, TransferToAgentTool, SetModelResponseTool, FinishTaskTool)):
        return True
    return tool._defers_response or getattr(tool, "func", None) is exit_loop  # a task for an agent; the end of a loop


def _find_run_id(session: Session) -> str:
    return join_run_id("adk", session.app_name, session.user_id, session.id)


def _find_asked(session: Session) -> dict[str, dict[str, Any]]:
    """Return the gate's requests for confirmation that have no response yet, by their ids."""
    asked: dict[str, dict[str, Any]] = {}
    for event in session.events:
        for call in event.get_function_calls():
            payload = (call.args or {}).get("toolConfirmation", {}).get("payload") if call.name == _CONFIRM else None
            if call.id and isinstance(payload, dict) and {"action_id", "run_id", "payload_hash"} <= set(payload):
                asked[call.id] = payload
        for response in event.get_function_responses():
            asked.pop(response.id or "", None)
    return asked


async def _is_any_open(gate: Gate, asked: list[dict[str, Any]]) -> bool:
    runs = {str(one["run_id"]) for one in asked}
    questions = {question.action_id for run_id in runs for question in await gate.questions(run_id)}
    return any(one["action_id"] in questions for one in asked)


async def _check_tool(tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> None:
    if await tool.check_require_confirmation(arguments, context):
        raise ConfigurationError(f"Tool {tool.name!r} has `require_confirmation`. Remove it: the gate asks.")
    if getattr(tool, "include_plugins", True) is False:
        raise ConfigurationError(f"Agent {tool.name!r} runs without plugins, so the gate cannot govern its tools.")


def _read_schema(tool: BaseTool) -> dict[str, Any]:
    declaration = tool._get_declaration()  # each tool of ADK overrides it; there is no public reader
    if declaration is None or (declaration.parameters is None and declaration.parameters_json_schema is None):
        return {"type": "object"}
    if declaration.parameters is None:
        return declaration.parameters_json_schema
    return declaration.parameters.json_schema.model_dump(mode="json", exclude_none=True, by_alias=True)
