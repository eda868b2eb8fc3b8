"""The MCP server of the gateway: requests of clients become governed calls, at every protocol version of the SDK."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from secrets import token_hex
from typing import Any

import mcp_types as types
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
from ...gate.gate import Gate, Settled
from ...gate.sessions import Sessions
from ..client.results import to_call_result, to_upstream_error
from .asking import Asking, AskOptions
from .catalog import Catalog
from .clients import Caller, Clients, Context

NAME = "interlock"
_INSTRUCTIONS = (
    "Calls are governed by Interlock: some need the approval of a person. A result that begins with PENDING says that "
    "the call waits and was not executed. Make exactly the same call again after it was approved; do not repeat it in "
    "a loop, and do not look for another way."
)
_STATE_SECONDS = 3_600.0
_MAX_LISTENERS = 1_024
#: Codes of calls to tools that a client should not know of: its list is old.
_MISSING = frozenset({"unknown_tool", "tool_quarantined"})


class _Server(Server[Any]):
    """The server of the SDK, which declares that the list of tools changes, on every transport."""

    def create_initialization_options(self, *given: Any, **options: Any) -> InitializationOptions:
        """Return what a client learns when it connects."""
        return super().create_initialization_options(NotificationOptions(tools_changed=True), **options)


class GatewayServer:
    """The server that clients connect to."""

    def __init__(
        self,
        gate: Gate,
        find_principal: Callable[[Context], str],
        options: AskOptions,
        catalog: Catalog,
        state_key: bytes,
    ) -> None:
        self._gate = gate
        self._options = options
        self._sessions = Sessions(gate)
        self._clients = Clients(self._sessions, find_principal)
        self._catalog = catalog
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
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        security = RequestStateSecurity(keys=[state_key], ttl=_STATE_SECONDS, bind_principal=self._bind_caller)
        self.server.middleware.append(RequestStateBoundary(security, default_audience=NAME))

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
        await self._clients.close()

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
        caller = self._clients.identify(ctx)
        await self._catalog.until_ready()
        asking = Asking(self._gate, self._options, ctx, caller, ask_client=params.input_responses is None)
        if params.request_state is not None:
            await asking.take_response(params.request_state, params.input_responses or {})
        intent = ToolIntent(
            call_id=f"{self._prefix}{next(self._numbers)}", tool_name=params.name, arguments=params.arguments or {}
        )
        try:
            settled = await self._call(caller, intent, asking)
        except InterlockError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        if settled.observation is not None:
            return await self._render(settled.observation)
        if asking.input_required is not None:
            return asking.input_required
        if settled.question is not None:
            return asking.pending(settled.question)
        text = "PENDING: the call waits for another one, and was not executed. Make it again later."
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)

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
        return to_call_result(observation, self._gate.artifacts.read)
