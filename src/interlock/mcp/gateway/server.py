"""The MCP server of the gateway: requests of clients become governed calls, at every protocol version of the SDK."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from secrets import token_hex
from typing import Any, TypeAlias, cast

import mcp_types as types
import msgspec
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ... import __version__
from ...domain.call import ToolIntent
from ...domain.errors import InterlockError, RunEndedError
from ...domain.observation import Observation
from ...domain.tool import JsonObject
from ...gate.gate import Gate, Settled
from ...gate.sessions import Sessions
from ...rendering.text import shorten
from ..client.connection import TRACING
from ..client.results import find_plain_text, to_call_result, to_upstream_error
from .asking import ApprovalState, Asking, AskOptions
from .catalog import Catalog
from .clients import Caller, Clients, Context
from .offerings import (
    Offerings,
    completion_tool_name,
    prompt_tool_name,
    read_tool_name,
    to_completion_result,
    to_prompt_result,
    to_resource_result,
)
from .relay import INVALID_STATE, InputState, Relay, refuse_state

NAME = "interlock"
_INSTRUCTIONS = (
    "Calls are governed by Interlock: some need the approval of a person. A result that begins with PENDING says that "
    "the call waits and was not executed. Make exactly the same call again after it was approved; do not repeat it in "
    "a loop, and do not look for another way."
)
_STATE_SECONDS = 3_600.0
_MAX_LISTENERS = 1_024
_MAX_TARGET_CHARS = 200
#: Codes of calls to tools that a client should not know of: its list is old.
_COMPLETION_FIELDS = {"ref", "argument", "context"}
_AnswerParams: TypeAlias = types.CallToolRequestParams | types.ReadResourceRequestParams | types.GetPromptRequestParams
#: Of a call that carries no answers.
_CALL_KEYS = frozenset({"name", "arguments", "_meta"})
_PROTOCOL_PREFIX = "io.modelcontextprotocol/"
#: What the SDK has read of the metadata before a request comes here.
_ENVELOPE = frozenset({types.PROTOCOL_VERSION_META_KEY, types.CLIENT_INFO_META_KEY, types.CLIENT_CAPABILITIES_META_KEY})
_NO_ANSWERS = types.CallToolRequestParams(name="")
#: The outcome of the current call, where it is settled already: the SDK puts it in form.
_OUTCOME: ContextVar[types.CallToolResult | types.InputRequiredResult | None] = ContextVar(
    "interlock_mcp_outcome", default=None
)
_MISSING = frozenset({"unknown_tool", "tool_quarantined"})


class _Server(Server[Any]):
    """The server of the SDK, which declares that the list of tools changes, on every transport."""

    def create_initialization_options(self, *given: Any, **options: Any) -> InitializationOptions:
        """Return what a client learns when it connects."""
        return super().create_initialization_options(NotificationOptions(tools_changed=True), **options)

    def get_capabilities(self, *given: Any, **options: Any) -> types.ServerCapabilities:
        """Return the capabilities. Only the list of tools is watched."""
        found = super().get_capabilities(*given, **options)
        prompts = found.prompts and found.prompts.model_copy(update={"list_changed": False})
        resources = found.resources and found.resources.model_copy(update={"list_changed": False})
        return found.model_copy(update={"prompts": prompts, "resources": resources})


class GatewayServer:
    """The server that clients connect to."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        gate: Gate,
        find_principal: Callable[[Context], str],
        options: AskOptions,
        catalog: Catalog,
        offerings: Offerings,
        relay: Relay,
        state_key: bytes,
        until_ready: Callable[[], Awaitable[None]],
    ) -> None:
        """
        Args:
            gate: Decides, asks and records.
            find_principal: Returns who a request acts for.
            options: How questions reach people.
            catalog: Lists tools.
            offerings: Resources, prompts and completion.
            relay: Relays what servers report and ask.
            state_key: Seals what clients carry between two requests.
            until_ready: Waits for servers that are being started.
        """
        self._until_ready = until_ready
        self._gate = gate
        self._options = options
        self._sessions = Sessions(gate)
        self._clients = Clients(self._sessions, find_principal)
        self._catalog = catalog
        self._offerings = offerings
        self._relay = relay
        self._prefix, self._numbers = f"call_{token_hex(6)}_", count(1)
        self._bus = InMemorySubscriptionBus()
        #: Connections of clients that are notified without a subscription, the newest last.
        self._connections: dict[Caller, ServerSession] = {}
        self.server = _Server(
            NAME,
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_list_resources=self._on_list_resources,
            on_list_resource_templates=self._on_list_templates,
            on_read_resource=self._on_read_resource,
            on_list_prompts=self._on_list_prompts,
            on_get_prompt=self._on_get_prompt,
            on_completion=self._on_completion,
            on_subscribe_resource=self._on_subscribe,
            on_unsubscribe_resource=self._on_unsubscribe,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self._server_info = self.server.server_info_stamp
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._on_set_level)
        security = RequestStateSecurity(keys=[state_key], ttl=_STATE_SECONDS, bind_principal=self._bind_caller)
        if TRACING not in sys.modules:  # the SDK begins with its tracing alone
            self.server.middleware.clear()
        boundary = RequestStateBoundary(security, default_audience=NAME)
        self.server.middleware += (self._record_refused_state, boundary, self._shorten_call)

    async def notify_tools_changed(self) -> None:
        """Inform the clients that the list of tools changed."""
        await self._bus.publish(ToolsListChanged())
        for caller, connection in list(self._connections.items()):
            try:
                await connection.send_tool_list_changed()
            except Exception:  # it is gone
                self._connections.pop(caller, None)

    async def close(self) -> None:
        """End all sessions."""
        self._relay.close()
        self._offerings.close()
        await self._clients.close()

    async def _record_refused_state(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Record that a client sent a request state that is refused: it may have been stolen or made up."""
        try:
            return await call_next(ctx)
        except MCPError as error:
            if error.data == INVALID_STATE:
                caller, params = self._clients.identify(ctx), ctx.params or {}
                target = shorten(str(params.get("name", params.get("uri", ""))), _MAX_TARGET_CHARS)
                message = (
                    f"The client {caller.client} sent a request state with {ctx.method} {target!r} that is forged, "
                    "expired, or was made for another call or client. It was refused, and it answers no question."
                )
                with suppress(InterlockError):  # the session may be over: the refusal counts
                    await self._sessions.warn(await self._clients.session_of(caller), message)
            raise

    def _bind_caller(self, ctx: Context) -> str:
        caller = self._clients.identify(ctx)
        return f"{caller.client}\n{caller.principal}"

    async def _on_list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        caller = self._clients.identify(ctx)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._connections.pop(caller, None)
            self._connections[caller] = ctx.session
            if len(self._connections) > _MAX_LISTENERS:
                del self._connections[next(iter(self._connections))]
        return await self._catalog.list_tools(caller)

    async def _on_call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if (settled := _OUTCOME.get()) is not None:
            return settled
        await self._until_ready()
        outcome = await self._govern(ctx, params.name, params.arguments or {}, params)
        match outcome:
            case Observation():
                return await self._render(outcome)
            case _:
                return outcome

    async def _shorten_call(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Take a plain call the short way: what the SDK would validate is checked here, and a result that is one text
        is made in its final form. The SDK validates any other request, and puts any other result in form.
        """
        call = _find_plain_call(ctx)
        if call is None:
            return await call_next(ctx)
        name, arguments = call
        await self._until_ready()
        outcome = await self._govern(ctx, name, arguments, _NO_ANSWERS)
        if isinstance(outcome, Observation):
            if (text := find_plain_text(outcome)) is not None:
                return self._build_text_result(ctx, text)
            outcome = await self._render(outcome)
        token = _OUTCOME.set(outcome)
        try:
            return await call_next(ctx)
        finally:
            _OUTCOME.reset(token)

    def _build_text_result(self, ctx: Context, text: str) -> JsonObject:
        result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": False}
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            result["resultType"] = "complete"
            result["_meta"] = {types.SERVER_INFO_META_KEY: self._server_info}
        return result

    async def _on_list_resources(self, ctx: Context, params: Any) -> types.ListResourcesResult:
        await self._until_ready()
        found = await self._offerings.list_resources()
        return types.ListResourcesResult(resources=found, ttl_ms=0, cache_scope="private")

    async def _on_list_templates(self, ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        await self._until_ready()
        found = await self._offerings.list_templates()
        return types.ListResourceTemplatesResult(resource_templates=found, ttl_ms=0, cache_scope="private")

    async def _on_list_prompts(self, ctx: Context, params: Any) -> types.ListPromptsResult:
        await self._until_ready()
        found = await self._offerings.list_prompts()
        return types.ListPromptsResult(prompts=found, ttl_ms=0, cache_scope="private")

    async def _on_read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = str(params.uri)
        server = await self._offerings.find_resource_owner(uri)
        outcome = await self._govern(ctx, read_tool_name(server), {"uri": uri}, params)
        match outcome:
            case Observation():
                return await asyncio.to_thread(to_resource_result, outcome, self._gate.artifacts.read)
            case types.CallToolResult():
                raise _pending_error(outcome)
            case _:
                return outcome

    async def _on_get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        server, name = self._offerings.find_prompt_owner(params.name)
        arguments = {"name": name, "arguments": params.arguments or {}}
        outcome = await self._govern(ctx, prompt_tool_name(server), arguments, params)
        match outcome:
            case Observation():
                return await asyncio.to_thread(to_prompt_result, outcome, self._gate.artifacts.read)
            case types.CallToolResult():
                raise _pending_error(outcome)
            case _:
                return outcome

    async def _on_completion(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        server = await self._offerings.find_completion_owner(params.ref)
        arguments = params.model_dump(by_alias=True, mode="json", exclude_none=True, include=_COMPLETION_FIELDS)
        if isinstance(params.ref, types.PromptReference):
            arguments["ref"]["name"] = self._offerings.find_prompt_owner(params.ref.name)[1]
        outcome = await self._govern(ctx, completion_tool_name(server), arguments, None)
        match outcome:
            case Observation():
                return await asyncio.to_thread(to_completion_result, outcome, self._gate.artifacts.read)
            case types.CallToolResult():
                raise _pending_error(outcome)
            case _:
                raise MCPError(types.INTERNAL_ERROR, "The client cannot be asked about a completion.")

    async def _on_set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._relay.log_levels[self._clients.identify(ctx)] = params.level
        return types.EmptyResult()

    async def _on_subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._offerings.subscribe(str(params.uri), self._clients.identify(ctx), ctx.session.send_resource_updated)
        return types.EmptyResult()

    async def _on_unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._offerings.unsubscribe(str(params.uri), self._clients.identify(ctx))
        return types.EmptyResult()

    async def _govern(
        self, ctx: Context, tool: str, arguments: JsonObject, params: _AnswerParams | None
    ) -> Observation | types.CallToolResult | types.InputRequiredResult:
        """Take a request through the pipeline. Return its outcome, what the client has to answer first, or PENDING."""
        caller = self._clients.identify(ctx)
        given = None if params is None else params.input_responses
        state = None if params is None or params.request_state is None else _read_state(params.request_state)
        if isinstance(state, InputState):
            return await self._relay.resume(ctx, caller, state, given)
        asking = Asking(self._gate, self._options, ctx, caller, ask_client=params is not None and state is None)
        if state is not None:
            await asking.take_response(state, given)
        intent = ToolIntent(call_id=f"{self._prefix}{next(self._numbers)}", tool_name=tool, arguments=arguments)

        async def work() -> Observation | types.CallToolResult | types.InputRequiredResult:
            try:
                settled = await self._call(caller, intent, asking)
            except InterlockError as error:
                raise MCPError(types.INTERNAL_ERROR, str(error)) from error
            if settled.observation is not None:
                return settled.observation
            return asking.input_required or asking.pending(settled.question)

        return await self._relay.run(ctx, caller, given, work)

    async def _call(self, caller: Caller, intent: ToolIntent, asking: Asking) -> Settled:
        with suppress(RunEndedError):  # a person cancelled it; the client may begin another one
            return await self._sessions.call(await self._clients.session_of(caller), intent, waits=asking.hold)
        self._clients.forget(caller)
        return await self._sessions.call(await self._clients.session_of(caller), intent, waits=asking.hold)

    async def _render(self, observation: Observation) -> types.CallToolResult:
        """Return the outcome of a call as its client gets it. Errors of the protocol are raised as such."""
        code = "" if observation.failure is None else observation.failure.code
        if code in _MISSING:
            await self.notify_tools_changed()
            raise MCPError(types.INVALID_PARAMS, f"{code}: {observation.summary}")
        error = to_upstream_error(observation)
        if error is not None:
            raise MCPError.from_error_data(error)
        if observation.artifacts:
            return await asyncio.to_thread(to_call_result, observation, self._gate.artifacts.read)
        return to_call_result(observation, self._gate.artifacts.read)


def _find_plain_call(ctx: Context) -> tuple[str, JsonObject] | None:
    """Return the name and arguments of a call of a tool that needs no validation by the SDK; None for any other
    request.
    """
    params: Any = ctx.params
    if ctx.method != "tools/call" or params is None or ctx.session.client_params is None:
        return None
    name, arguments, meta = params.get("name"), params.get("arguments", {}), params.get("_meta", {})
    if type(name) is not str or type(arguments) is not dict or type(meta) is not dict or params.keys() - _CALL_KEYS:
        return None
    if any(key.startswith(_PROTOCOL_PREFIX) and key not in _ENVELOPE for key in cast(JsonObject, meta)):
        return None
    if type(cast(JsonObject, meta).get("progressToken", "")) not in (str, int):
        return None
    return name, cast(JsonObject, arguments)


def _read_state(text: str) -> ApprovalState | InputState:
    """Return what a request state says that was unsealed before."""
    try:
        return msgspec.json.decode(text.encode(), type=ApprovalState | InputState)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise refuse_state() from None


def _pending_error(pending: types.CallToolResult) -> MCPError:
    """Return PENDING for a request whose result has no place for errors."""
    text = "".join(block.text for block in pending.content if isinstance(block, types.TextContent))
    return MCPError(types.INVALID_REQUEST, text, pending.meta)
