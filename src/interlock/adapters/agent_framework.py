"""Microsoft Agent Framework: middleware puts the gate in front of every tool of an agent.

agent = Agent(client=client, tools=[refund], middleware=interlocked(gate))
response = await agent.run("Refund order 7.", session=agent.create_session(session_id="ticket-42"))
response = await agent.run(answers(session), session=session)  # after a pause
"""

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, Unpack
from uuid import uuid4

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    UserInputRequiredException,
)
from agent_framework._middleware import categorize_middleware
from pydantic_core import to_jsonable_python

from ..domain.call import ToolIntent
from ..domain.errors import ConfigurationError, InterlockError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..gate.gate import Gate, describe_question
from ..gate.named_run import join_run_id
from ..registry.decorator import ToolOptions
from ..registry.json_schema import tool_from_schema

_FRAMEWORK = "agent-framework"
#: Begins the id of a session that the program did not give: it would not be found again after a pause or a crash.
_UNNAMED = "unnamed-"
#: True inside an agent that is a tool of another one: the framework discards its session, so a question waits there.
_INSIDE_AGENT_TOOL: ContextVar[bool] = ContextVar("interlock_maf_agent_tool", default=False)
_AGENT: ContextVar[str] = ContextVar("interlock_maf_agent", default="")


def interlocked(gate: Gate) -> list[AgentMiddleware | ChatMiddleware | FunctionMiddleware]:
    """Return the middleware that governs every tool call of an agent. It comes last: `[other, *interlocked(gate)]`."""
    return [_RunMiddleware(gate), _ModelMiddleware(), _CallMiddleware(gate)]


class _OwnTool(FunctionTool):
    """A tool of Interlock."""


class _RunMiddleware(AgentMiddleware):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        functions = categorize_middleware(context.client_kwargs.get("middleware"))["function"]
        if not isinstance(functions[-1], _CallMiddleware):
            raise ConfigurationError(
                "interlocked(gate) has to be the last middleware: nothing may change a call behind it."
            )
        if context.session is None:
            context.session = AgentSession(session_id=f"{_UNNAMED}{uuid4()}")
        run_id = _find_run_id(context.session)

        async def release() -> None:
            if run_id:
                await self._gate.release(run_id)

        _AGENT.set(context.agent.name or "")  # not reset: a stream is read after this
        if context.stream:
            context.stream_cleanup_hooks.append(release)
            await call_next()
            return
        try:
            await call_next()
        finally:
            await release()


class _ModelMiddleware(ChatMiddleware):
    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Refuse tools that are not executed here, and name each call after its place in the conversation."""
        for tool in (context.options or {}).get("tools") or ():
            _check_tool(tool)
        await call_next()
        if isinstance(context.result, ChatResponse):
            turn = sum(any(one.type == "function_call" for one in message.contents) for message in context.messages)
            for content in (content for message in context.result.messages for content in message.contents):
                # The framework would take a random id, which is another one when the model is asked again.
                if content.type == "function_call" and content.id is None and content.call_id:
                    content.id = f"{content.call_id}@{turn}"


class _CallMiddleware(FunctionMiddleware):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._call(context, call_next)
        except InterlockError as error:  # another exception would be a result of the tool
            raise MiddlewareFailure(str(error)) from error

    async def _call(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        function = context.function
        is_own = isinstance(function, _OwnTool)
        _check_tool(function)
        if not is_own:
            self._gate.declare(function.name, function.description, function.parameters(), source=_FRAMEWORK)
        arguments = context.arguments if isinstance(context.arguments, dict) else dict(context.arguments)
        sent = to_jsonable_python(arguments)
        call_id = context.metadata["call_id"]
        occurrence = context.metadata.get("function_call_occurrence_id") or call_id

        async def execute(permitted: JsonObject) -> Any:
            is_agent = getattr(function.func, "__qualname__", "").endswith("as_tool.<locals>._agent_wrapper")
            token = _INSIDE_AGENT_TOOL.set(_INSIDE_AGENT_TOOL.get() or is_agent)
            try:
                if permitted == sent:
                    await call_next()
                else:  # a person edited them: the framework would ask again
                    edited = FunctionInvocationContext(
                        function, permitted, context.session, kwargs=context.kwargs, tools=context.tools
                    )
                    context.result = await function.invoke(arguments=permitted, context=edited, tool_call_id=call_id)
            finally:
                _INSIDE_AGENT_TOOL.reset(token)
            return _read_value(context.result)

        run_id = _find_run_id(context.session)
        try:
            settled = await self._gate.call(
                run_id,
                ToolIntent(call_id=occurrence, tool_name=function.name, arguments=sent),
                None if is_own else execute,
                # Without a session the framework does not continue a call.
                waits="inline" if _INSIDE_AGENT_TOOL.get() or not run_id else "pause",
                suspends=(UserInputRequiredException,),
                passes=(MiddlewareTermination, MiddlewareFailure),
                agent=_AGENT.get(),
                framework=_FRAMEWORK,
            )
        except UserInputRequiredException as paused:
            inner = [one.additional_properties["interlock"] for one in paused.contents if _is_ours(one)]
            if not inner:
                raise
            shown = inner[0]  # an agent inside the tool is paused: the tool continues it
        else:
            if settled.question is None:
                if not settled.ran or settled.result is not settled.value:
                    context.result = FunctionTool.parse_result(settled.result)
                return
            shown = describe_question(settled.question)
        call = Content.from_function_call(call_id=call_id, name=function.name, arguments=sent, id=occurrence)
        context.result = Content.from_function_approval_request(
            id=occurrence, function_call=call, additional_properties={"interlock": shown}
        )


def answers(session: AgentSession) -> Message | None:
    """Return the message that continues a paused session; None when nothing was asked.

    It approves nothing: every open call is put to the gate again, and the log says what people answered.
    """
    pending = session.state.get("tool_approval", {}).get("pending_approval_requests", ())
    requests = [one if isinstance(one, Content) else Content.from_dict(one) for one in pending]
    responses = [one.to_function_approval_response(True) for one in requests if _is_ours(one)]
    return Message(role="user", contents=responses) if responses else None


def interlock_tools(gate: Gate, *tools: Any) -> list[FunctionTool]:
    """Return Interlock's own tools, such as `LocalTools(".")`, for an agent that has `interlocked(gate)`."""

    def refuse(**arguments: Any) -> None:
        raise ConfigurationError("This tool runs behind a gate. Give the agent interlocked(gate) as middleware.")

    return [
        _OwnTool(name=tool.name, description=spec.description, func=refuse, input_model=dict(spec.parameters_schema))
        for tool in gate.tools(*tools)
        for spec in (tool.spec,)
    ]


def tools(tools: Iterable[FunctionTool], **options: Unpack[ToolOptions]) -> list[ToolDefinition]:
    """Return tools of the framework for Interlock's own `Agent`, with options such as `risk="read"`."""

    def convert(tool: FunctionTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> Any:
            return await tool.invoke(arguments=arguments, tool_call_id=context.call_id, skip_parsing=True)

        _check_tool(tool)
        return tool_from_schema(tool.name, tool.description, tool.parameters(), call, **options)

    return [convert(tool) for tool in tools]


def _find_run_id(session: AgentSession | None) -> str:
    """Return the run of the session; empty for one without a given id: then `gate.run` has to name it."""
    unnamed = session is None or session.session_id.startswith(_UNNAMED)
    return "" if unnamed else join_run_id("maf", session.session_id)


def _check_tool(tool: Any) -> None:
    if not isinstance(tool, FunctionTool):
        name = tool.get("type", tool) if isinstance(tool, dict) else getattr(tool, "name", tool)
        raise ConfigurationError(f"The provider executes {name!r}, so the gate never sees its calls. Remove this tool.")
    if tool.declaration_only:
        raise ConfigurationError(f"Tool {tool.name!r} has no function here: the gate cannot govern what executes it.")
    if tool.approval_mode == "always_require":
        raise ConfigurationError(f"Tool {tool.name!r} has `approval_mode`. Remove it: the gate asks.")


def _is_ours(content: Any) -> bool:
    return content.type == "function_approval_request" and "interlock" in content.additional_properties


def _read_value(result: Any) -> Any:
    """Return what the log keeps of a result: the text, else the parts."""
    if not isinstance(result, list) or not all(isinstance(one, Content) for one in result):
        return result
    is_text = all(one.type == "text" for one in result)
    return "\n".join(one.text or "" for one in result) if is_text else [one.to_dict() for one in result]
