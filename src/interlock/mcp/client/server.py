"""One MCP server: its connection, its tools as definitions of the runtime, and calls to them."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from mcp import Client
from mcp.client._transport import Transport
from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    ListRootsResult,
    Root,
    Tool,
)
from pydantic import FileUrl

from ...domain.errors import CallFailedError, PreconditionError, ToolDeclarationError
from ...domain.tool import CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.interface import Toolbox
from ...rendering.text import shorten
from .call_relay import CALL_RELAY
from .connection import (
    Connection,
    ConnectionLostError,
    InvalidResultError,
    Relays,
    ServerUnavailableError,
    UpstreamRpcError,
    WatchedTransport,
)
from .definitions import ForeignTool, OutputCheck, build_definition, clean_text, read_tool
from .launcher import Launcher
from .results import to_output
from .servers_file import ServerConfig
from .stdio import StdioTransport

ServerState: TypeAlias = Literal["new", "connected", "lost", "refused", "closed"]
_MAX_MESSAGE_CHARS = 1_000
_NO_SAMPLING = ErrorData(code=INVALID_REQUEST, message="Sampling is not relayed here")
#: A list that is older is not relied on for another call.
_LIST_SECONDS = 60.0


#: Returns a new transport of the SDK.
OpenTransport: TypeAlias = Callable[[], Transport]
#: Replaces the tools of a server. Returns why that is not possible; empty when it was.
UpdateTools: TypeAlias = Callable[[str, Sequence[ToolDefinition]], str]


class McpServer:
    """A configured server."""

    def __init__(
        self,
        config: ServerConfig,
        launcher: Launcher,
        owner: Toolbox,
        update: UpdateTools,
        open_transport: OpenTransport | None = None,
    ) -> None:
        self.config = config
        self._launcher = launcher
        self._owner = owner
        self._update = update
        self._given_transport = open_transport
        #: Its tools that can be used, by their names here, and why others cannot.
        self._tools: dict[str, ForeignTool] = {}
        self.problems: dict[str, str] = {}
        self._refused = ""
        self._checks: dict[str, OutputCheck] = {}
        #: Answers to what the server asks of its client, where `relay` names it: set by the gateway.
        self.relays = Relays()
        self._connection = self._new_connection()

    @property
    def name(self) -> str:
        """Its name in the servers file."""
        return self.config.name

    @property
    def state(self) -> ServerState:
        """`connected`, `lost` (it is tried again), `refused` (its tools cannot be used), `new` or `closed`."""
        return "refused" if self._refused else self._connection.state

    @property
    def reason(self) -> str:
        """Why it is not connected, or refused."""
        return self._refused or self._connection.reason

    @property
    def client(self) -> Client | None:
        """The client of the SDK while it is connected: for resources, prompts and completion."""
        return self._connection.client if self._connection.state == "connected" else None

    @property
    def protocol(self) -> str:
        """The version of the protocol; empty while it is not connected."""
        return self.client.protocol_version if self.client is not None else ""

    @property
    def info(self) -> Implementation | None:
        """What it says of itself."""
        return self.client.server_info if self.client is not None else None

    @property
    def instructions(self) -> str:
        """What it wants models to know. Untrusted."""
        return (self.client.instructions or "") if self.client is not None else ""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its definitions, by their names here."""
        return MappingProxyType({name: tool.raw for name, tool in self._tools.items()})

    @property
    def stderr(self) -> str:
        """The end of what it wrote to standard error."""
        transport = self._connection.transport
        return transport.stderr if isinstance(transport, StdioTransport) else ""

    async def start(self) -> None:
        """Connect, and return after the first attempt."""
        await self._connection.start()

    async def refresh(self) -> None:
        """List the tools now. A server that cannot be reached keeps the ones it had."""
        try:
            await self._connection.list_tools()
        except Exception:
            return

    async def answer(self, client: Client, asked: InputRequiredResult) -> dict[str, Any]:
        """Return the answers to what the server wants to know before it continues with another request than a call."""
        return await self._connection.answer(client, asked)

    def forget(self) -> None:
        """Forget a connection whose event loop is gone."""
        self._connection = self._new_connection()

    async def close(self) -> None:
        """End the connection."""
        await self._connection.close()

    def _new_connection(self) -> Connection:
        return Connection(self._open_transport, self._choose_relays(), self._on_tools, self._on_state)

    def _choose_relays(self) -> Relays:
        """Declare what the configuration relays, and nothing else. Without a relay, the answer is a refusal."""
        relay = self.config.relay
        return Relays(
            server=self.name,
            elicitation=self._elicit if "elicitation" in relay else None,
            sampling=self._sample if "sampling" in relay else None,
            roots=self._list_roots if "roots" in relay else None,
        )

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        answer = self.relays.elicitation
        return ElicitResult(action="decline") if answer is None else await answer(context, params)

    async def _sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        answer = self.relays.sampling
        return _NO_SAMPLING if answer is None else await answer(context, params)

    def _open_transport(self, on_end: Callable[[str], None]) -> Transport:
        if self._given_transport is not None:
            return WatchedTransport(self._given_transport(), on_end)
        return StdioTransport(lambda fd, output: self._launcher.start(self.config, fd, output), on_end)

    async def _list_roots(self, context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(f"file://{self._launcher.root}"))])

    def _on_state(self) -> None:
        pass

    def _on_tools(self, listed: list[Tool]) -> None:
        """Take over a list of tools."""
        found: dict[str, ForeignTool] = {}
        problems: dict[str, str] = {}
        definitions: list[ToolDefinition] = []
        for raw in listed:
            if not any(fnmatchcase(raw.name, pattern) for pattern in self.config.tools):
                continue
            tool = read_tool(self.name, raw)
            if tool.name in found:
                self._refuse(f"two of its tools would be called {tool.name!r}")
                return
            if tool.problem:
                problems[shorten(raw.name, 100)] = tool.problem
                continue
            found[tool.name] = tool
            try:
                definitions.append(self._define(tool))
            except ToolDeclarationError as error:
                problems[raw.name] = str(error)
                del found[tool.name]
        self._refused = self._update(self.name, definitions)
        if self._refused:
            self._refuse(self._refused)
            return
        self._tools, self.problems = found, problems

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        self._tools, self.problems = {}, {}
        self._update(self.name, ())

    def _define(self, tool: ForeignTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> NormalizedOutput:
            return await self._call(tool, definition, arguments, context)

        schema = tool.raw.output_schema
        if schema is not None:
            self._checks[tool.digest] = OutputCheck(schema)
        definition = build_definition(tool, self.config, call, self._owner)
        return definition

    async def _call(
        self, tool: ForeignTool, definition: ToolDefinition, arguments: JsonObject, context: ToolContext
    ) -> NormalizedOutput:
        relay = CALL_RELAY.get()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if relay is not None:
                await relay.report_progress(progress, total, message)
            text = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            context.progress(clean_text(f"{text} {message or ''}", _MAX_MESSAGE_CHARS))

        try:
            result = await self._connection.call(tool.raw.name, arguments, on_progress)
        except ServerUnavailableError as error:
            message = f"The MCP server {self.name} is not connected: {error}"
            raise PreconditionError(CheckProblem(message=message)) from None
        except ConnectionLostError as error:
            message = f"The connection to the MCP server {self.name} was lost during the call: {error}."
            safe = definition.read_only or definition.idempotent
            raise CallFailedError("upstream_error" if safe else "outcome_unknown", message) from None
        except UpstreamRpcError as error:
            message = f"The MCP server {self.name} answered with error {error.code}: {shorten(str(error), 500)}"
            details = {"rpc_code": error.code, "rpc_message": str(error), "rpc_data": error.data}
            raise CallFailedError("upstream_error", message, details=details) from None
        except InvalidResultError as error:
            raise self._invalid(str(error)) from None
        check = self._checks.get(tool.digest)
        if check is not None and not result.is_error and (problem := check.find_problem(result.structured_content)):
            raise self._invalid(f"its structured content does not fit its schema ({problem})")
        return to_output(result, definition)

    def _invalid(self, problem: str) -> CallFailedError:
        message = f"The tool ran, but the answer of the MCP server {self.name} cannot be used: {problem}."
        return CallFailedError("upstream_invalid_output", message)
