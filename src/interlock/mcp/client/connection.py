"""The connection to one MCP server: one task that owns it, and reconnects with growing pauses when it is lost.

The SDK speaks both eras of the protocol; what is declared to a server is fixed by configuration, so that it offers the
same to every run. Calls come from any task of the event loop. A call that the connection is lost under ends at once.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import anyio
import msgspec
from mcp import Client, MCPError
from mcp.client._transport import ReadStream, Transport, TransportStreams
from mcp.client.session import ClientRequestContext, ElicitationFnT, ListRootsFnT, SamplingFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    LOG_LEVEL_META_KEY,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    ErrorData,
    Implementation,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    LoggingMessageNotificationParams,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from ...domain.errors import ConfigurationError, InterlockError, SandboxSetupError
from ...domain.tool import JsonObject
from ...rendering.text import describe_error, shorten
from .call_channel import UpstreamRpcError
from .call_relay import CALL_RELAY, CallRelay
from .message_stream import MessageStream
from .results import read_result
from .stdio import StdioTransport

ConnectionState: TypeAlias = Literal["new", "connected", "lost", "closed"]

#: For a server to start, agree on a protocol and list its tools.
CONNECT_SECONDS = 30.0
#: How long a call waits for a connection that is being made.
_WAIT_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.25, 30.0
#: A connection that lasted so long was a good one: the next pause is short again.
_GOOD_SECONDS = 60.0
_MAX_PAGES = 100
MAX_TOOLS = 1_000
MAX_ROUNDS = 10
_LISTEN_PAUSE_SECONDS = 5.0
_MAX_REASON_CHARS = 500

_result_adapter: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
#: With it spans may be collected: the session makes one for each call, and passes its context on to the server.
TRACING = "opentelemetry.sdk.trace"
_CLIENT = Implementation(name="interlock", version=version("interlock"))


class ServerUnavailableError(InterlockError):
    """There is no connection to the server. Nothing was sent."""


class ConnectionLostError(InterlockError):
    """The connection was lost while a call was under way."""


class InvalidResultError(InterlockError):
    """The server answered with something that is no result."""


class Relays(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to what a server asks of its client. None: it is not declared, and refused."""

    elicitation: ElicitationFnT | None = None
    sampling: SamplingFnT | None = None
    roots: ListRootsFnT | None = None
    #: The name of the server, for those who are asked.
    server: str = ""

    def allows(self, request: InputRequest) -> bool:
        """Return True if a server may ask this."""
        match request:
            case ElicitRequest():
                return self.elicitation is not None
            case CreateMessageRequest():
                return self.sampling is not None
            case ListRootsRequest():
                return self.roots is not None


class WatchedTransport:
    """Another transport, whose end is noticed."""

    def __init__(self, inner: Transport, on_end: Callable[[str], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    async def __aenter__(self) -> TransportStreams:
        reading, writing = await self._inner.__aenter__()
        return _WatchedStream(reading, self._on_end), writing

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


class _WatchedStream(MessageStream):
    def __init__(self, inner: ReadStream[SessionMessage | Exception], on_end: Callable[[str], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._inner.receive()
        except anyio.EndOfStream:
            self._on_end("the connection was closed")
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


class Connection:
    """The connection to one server."""

    def __init__(
        self,
        open_transport: Callable[[Callable[[str], None]], Transport],
        relays: Relays,
        on_tools: Callable[[list[Tool]], None],
        on_state: Callable[[], None],
    ) -> None:
        """
        Args:
            open_transport: Returns a new transport, given what to call when it ends by itself.
            relays: What a server may ask for.
            on_tools: Called with every list of its tools.
            on_state: Called when the state has changed.
        """
        self._open_transport = open_transport
        self._relays = relays
        self._on_tools = on_tools
        self._on_state = on_state
        self.state: ConnectionState = "new"
        #: Why it is not connected.
        self.reason = ""
        self.client: Client | None = None
        #: Counts the connections that were made.
        self.number = 0
        self.transport: Transport | None = None
        #: The server said that its tools changed, and they were not listed since.
        self.is_stale = False
        self.listed_at = 0.0
        #: The clients of calls under way.
        self._callers: list[CallRelay] = []
        self._owner: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._connected = asyncio.Event()
        self._tried = asyncio.Event()
        self._wanted = asyncio.Event()
        #: Held while the tools are listed; and the listing that was not begun yet.
        self._listing = asyncio.Lock()
        self._next_listing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and keep connected. Return after the first attempt, whatever came of it."""
        if self._owner is None:
            self._owner = asyncio.create_task(self._own(), name="interlock-mcp")
        await self._tried.wait()

    async def close(self) -> None:
        """End the connection."""
        owner, self._owner = self._owner, None
        if owner is not None:
            self._lost.set()  # the SDK may swallow the cancellation while it connects or leaves
            owner.cancel()
            await asyncio.wait((owner,))
        self._set_state("closed", "it was closed")

    def mark_lost(self, reason: str) -> None:
        """Give up the connection, and make another one."""
        if self.state == "connected":
            self._set_state("lost", reason)
        elif not self.reason:
            self.reason = reason
        self._lost.set()

    async def call(self, name: str, arguments: JsonObject, on_progress: ProgressFnT | None) -> CallToolResult:
        """Call a tool. Cancelling this cancels the call at the server."""
        client, relay = await self.ready(), CALL_RELAY.get()
        answers: dict[str, Any] = {}
        if relay is not None:
            self._callers.append(relay)
            if relay.log_level is not None:
                answers["_meta"] = {LOG_LEVEL_META_KEY: relay.log_level}
        try:
            for _ in range(MAX_ROUNDS):
                result = await self._send(client, name, arguments, on_progress, answers)
                if isinstance(result, CallToolResult):
                    return result
                answers |= await self.answer(client, result)
        finally:
            if relay is not None:
                self._callers.remove(relay)
        raise InvalidResultError(f"it asked for input more than {MAX_ROUNDS} times")

    async def _send(
        self,
        client: Client,
        name: str,
        arguments: JsonObject,
        on_progress: ProgressFnT | None,
        answers: dict[str, Any],
    ) -> CallToolResult | InputRequiredResult:
        transport = self.transport
        try:
            if (
                isinstance(transport, StdioTransport)
                and transport.calls is not None
                and answers.keys() <= {"_meta"}
                and TRACING not in sys.modules
            ):
                params = {"name": name, "arguments": arguments}
                meta = {**transport.envelope, **answers.get("_meta", {})}
                found = await transport.calls.call(params, meta, on_progress, self._on_log)
                return read_result(found, client.protocol_version)
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments, **answers))
            return await client.session.send_request(request, cast(Any, _result_adapter), progress_callback=on_progress)
        except MCPError as error:
            if error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                raise ConnectionLostError(self.reason or error.message) from None
            raise UpstreamRpcError(error.code, error.message, error.data) from None
        except ValidationError as error:
            count = error.error_count()
            raise InvalidResultError(f"{count} fields of its result are not as the protocol has them") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise ConnectionLostError(self.reason or "the connection was closed") from None

    async def answer(self, client: Client, asked: InputRequiredResult) -> dict[str, Any]:
        """Return the answers to what a server of the newer protocol wants to know before it continues, as parameters
        of the next request.
        """
        return {"request_state": asked.request_state, "input_responses": await self._answer(client, asked)}

    async def _answer(self, client: Client, asked: InputRequiredResult) -> dict[str, Any]:
        requests, relay = asked.input_requests or {}, CALL_RELAY.get()
        if not all(map(self._relays.allows, requests.values())):
            raise InvalidResultError("it asked for input that is not relayed to it")
        if relay is not None:
            try:
                return dict(await relay.answer(self._relays.server, requests))
            except MCPError as error:
                raise UpstreamRpcError(error.code, error.message, error.data) from None
        answers: dict[str, Any] = {}
        for key, request in requests.items():
            context = ClientRequestContext(session=client.session, request_id=key)
            answers[key] = await client.session.dispatch_input_request(context, request)
            if isinstance(answers[key], ErrorData):
                raise InvalidResultError("it asked for input that is not relayed to it")
        return answers

    async def list_tools(self) -> None:
        """List the tools now, and hand them on. Those who ask before the request is sent share it. A request under way
        is not joined: its answer may have been made before a change that the caller knows of.
        """
        client = await self.ready()
        if self._next_listing is None:
            self._next_listing = asyncio.create_task(self._list_next(client))
            self._next_listing.add_done_callback(_take_error)
        await asyncio.shield(self._next_listing)

    async def _list_next(self, client: Client) -> None:
        async with self._listing:
            self._next_listing = None
            await self._list(client)

    async def ready(self) -> Client:
        """Return the client, once there is a connection. Raise `ServerUnavailableError` when there is none in time."""
        if self.client is not None and self.state == "connected":
            return self.client
        if self._owner is not None:
            self._wanted.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._connected.wait()
        if self.client is None or self.state != "connected":
            raise ServerUnavailableError(self.reason or "it is not connected")
        return self.client

    async def _own(self) -> None:
        """Connect again and again, until this is closed."""
        pause, loop = _FIRST_PAUSE_SECONDS, asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._serve()
            except Exception as error:
                self._set_state("lost", self.reason if self._lost.is_set() and self.reason else _explain(error))
            finally:
                self.client = self.transport = None
                self._connected.clear()
                self._tried.set()
            if self._owner is None:
                return
            pause = _FIRST_PAUSE_SECONDS if loop.time() - began > _GOOD_SECONDS else pause
            self._wanted.clear()
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def _serve(self) -> None:
        """Make a connection, and return when it is lost."""
        self._lost, self._changed = asyncio.Event(), asyncio.Event()
        self.reason, lost = "", self._lost

        def on_end(reason: str) -> None:
            if lost is self._lost:
                self.mark_lost(reason)

        self.transport = transport = self._open_transport(on_end)
        if isinstance(transport, StdioTransport):
            transport.on_tools_changed = self._mark_changed
        client = Client(
            transport,
            cache=None,
            client_info=_CLIENT,
            message_handler=self._on_message,
            elicitation_callback=self._relays.elicitation and self._on_elicitation,
            sampling_callback=self._relays.sampling and self._on_sampling,
            list_roots_callback=self._relays.roots and self._on_roots,
            logging_callback=self._on_log,
        )
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_SECONDS):
                await stack.enter_async_context(client)
                await self._list(client)
            self.client = client
            self.number += 1
            self._set_state("connected", "")
            self._connected.set()
            self._tried.set()
            await self._keep(client)

    async def _keep(self, client: Client) -> None:
        """Wait until the connection is lost. Meanwhile list the tools when the server says that they changed."""
        listening = asyncio.create_task(self._listen(client))
        lost = asyncio.create_task(self._lost.wait())
        try:
            while not lost.done():
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait((lost, changed), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not lost.done() and self.is_stale:
                    self._changed.clear()
                    with suppress(MCPError, InvalidResultError, ServerUnavailableError):
                        await self.list_tools()
        finally:
            listening.cancel()
            lost.cancel()
            await asyncio.wait((listening, lost))

    async def _listen(self, client: Client) -> None:
        """Hear of changes from a server of the newer protocol, which sends them to those that listen."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._mark_changed()  # what changed before is not repeated
                    async for _ in changes:
                        self._mark_changed()
            except (SubscriptionLost, TimeoutError):
                pass
            except MCPError:
                return
            await asyncio.sleep(_LISTEN_PAUSE_SECONDS)

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._mark_changed()

    async def _on_elicitation(self, context: ClientRequestContext, params: ElicitRequestParams) -> Any:
        relay, answer = self._find_caller(), self._relays.elicitation
        if relay is None and answer is not None:
            return await answer(context, params)
        return await self._ask(relay, ElicitRequest(params=params))

    async def _on_sampling(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> Any:
        relay, answer = self._find_caller(), self._relays.sampling
        if relay is None and answer is not None:
            return await answer(context, params)
        return await self._ask(relay, CreateMessageRequest(params=params))

    async def _on_roots(self, context: ClientRequestContext) -> Any:
        relay, answer = self._find_caller(), self._relays.roots
        if relay is None and answer is not None:
            return await answer(context)
        return await self._ask(relay, ListRootsRequest())

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        relay = self._find_caller()
        if relay is not None:
            await relay.log(params)

    def _find_caller(self) -> CallRelay | None:
        """Return the client of the only call under way: what a server asks by itself says not which call it is of."""
        return self._callers[0] if len(self._callers) == 1 else None

    async def _ask(self, relay: CallRelay | None, request: InputRequest) -> Any:
        if relay is None:
            return ErrorData(code=INVALID_REQUEST, message="It is not known which call this belongs to")
        try:
            return (await relay.answer(self._relays.server, {"request": request}))["request"]
        except MCPError as error:
            return error.error

    def _mark_changed(self) -> None:
        self.is_stale = True
        self._changed.set()

    async def _list(self, client: Client) -> None:
        self.is_stale = False
        tools: list[Tool] = []
        if client.server_capabilities.tools is not None or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                try:
                    page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                except ValidationError as error:
                    count = error.error_count()
                    raise InvalidResultError(f"{count} fields of its tools are not as the protocol has them") from None
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or len(tools) > MAX_TOOLS:
                    break
            if cursor is not None or len(tools) > MAX_TOOLS:
                raise InvalidResultError(f"it lists more than {MAX_TOOLS:,} tools, or more than {_MAX_PAGES} pages")
        self.listed_at = asyncio.get_running_loop().time()
        self._on_tools(tools)

    def _set_state(self, state: ConnectionState, reason: str) -> None:
        self.reason = shorten(reason, _MAX_REASON_CHARS)
        if state != "connected":
            self._connected.clear()
        if state != self.state:
            self.state = state
            self._on_state()


def _take_error(task: "asyncio.Task[None]") -> None:
    """Look at the error of a task: those who waited for it may be gone."""
    if not task.cancelled():
        task.exception()


def _explain(error: BaseException) -> str:
    """Return why no connection was made, without the groups that tasks wrap errors in."""
    while inner := cast(tuple[BaseException, ...], getattr(error, "exceptions", ())):
        error = inner[0]
    match error:
        case TimeoutError():
            return f"it was not ready after {CONNECT_SECONDS:g} s"
        case MCPError():
            return f"it answered with error {error.code}: {error.message}"
        case SandboxSetupError() | ConfigurationError() | InvalidResultError():
            return str(error)
        case _:
            return describe_error(error)
