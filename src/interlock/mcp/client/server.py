"""One MCP server: its connection, its tools as definitions of the runtime, and calls to them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import httpx2
from mcp import Client, MCPError
from mcp.client._transport import Transport
from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_REQUEST,
    CallToolResult,
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
from pydantic import FileUrl, ValidationError

from ...domain import json
from ...domain.errors import (
    CallFailedError,
    ConfigurationError,
    PreconditionError,
    SandboxSetupError,
    ToolDeclarationError,
)
from ...domain.event import McpServerConnected, McpServerLost, McpToolsChanged, McpToolsListed
from ...domain.state.ledger import ToolSourceEntry
from ...domain.tool import CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.interface import SourceFact, Toolbox
from ...rendering.text import shorten
from .call_channel import UpstreamRpcError
from .call_relay import CALL_RELAY
from .connection import (
    Connection,
    ConnectionLostError,
    InvalidResultError,
    Relays,
    ServerUnavailableError,
    WatchedTransport,
)
from .definitions import ForeignTool, OutputCheck, build_definition, build_quarantined, clean_text, read_tool
from .http import HttpTransport
from .launcher import Launcher
from .pins import Deviation, PinStore, find_deviation
from .results import to_output
from .servers_file import ServerConfig
from .stdio import StdioTransport

ServerState: TypeAlias = Literal["new", "connected", "lost", "refused", "closed"]
_MAX_MESSAGE_CHARS = 1_000
_MAX_DIFF_CHARS = 8_000
#: A list that is older is not relied on for another call.
_LIST_SECONDS = 60.0
_MAX_USERS = 32
_NO_SAMPLING = ErrorData(code=INVALID_REQUEST, message="Sampling is not relayed here")

#: The token of the user that the current call acts for.
_CALL_TOKEN: ContextVar[str] = ContextVar("interlock_mcp_token", default="")

#: Returns a new transport of the SDK.
OpenTransport: TypeAlias = Callable[[], Transport]
#: Replaces the tools of a server. Returns why that is not possible; empty when it was.
UpdateTools: TypeAlias = Callable[[str, Sequence[ToolDefinition]], str]


class Quarantine(NamedTuple):
    """A tool that may not be called until a person accepts its definition."""

    tool: ForeignTool
    deviation: Deviation


class _UserConnection:
    """The connection of one user, with their token and the definitions that the server shows them."""

    def __init__(self) -> None:
        self.token = ""
        self.digests: dict[str, str] = {}
        self.connection: Connection | None = None


class McpServer:
    """A configured server."""

    def __init__(  # noqa: PLR0913 - its parts
        self,
        config: ServerConfig,
        *,
        launcher: Launcher,
        pins: PinStore,
        owner: Toolbox,
        update: UpdateTools,
        on_change: Callable[[], None],
        open_transport: OpenTransport | None = None,
        auth: httpx2.Auth | None = None,
        add_secret: Callable[[str], None] = lambda value: None,
    ) -> None:
        if auth is not None and (not config.url or config.consent is not None):
            raise ConfigurationError(f"server {config.name}: auth is for servers with url and without consent.")
        self.config = config
        self.pins = pins
        #: Its tools that can be used, those that wait for a person, and why others cannot be used.
        self.quarantined: Mapping[str, Quarantine] = {}
        self.problems: Mapping[str, str] = {}
        #: Answers to what the server asks of its client, where `relay` names it: set by the gateway.
        self.relays = Relays()
        self._launcher = launcher
        self._owner = owner
        self._update = update
        self._on_change = on_change
        self._given_transport = open_transport
        self._auth = auth
        self._add_secret = add_secret
        self._tools: dict[str, ForeignTool] = {}
        self._listed: list[Tool] | None = None
        #: What is listed was accepted before, and the server was not reached yet.
        self._is_early = False
        #: What the definitions were made from.
        self._basis: object = None
        self._checks: dict[str, OutputCheck] = {}
        self._refused = ""
        self._connection_id = ""
        self._program: JsonObject = {}
        self._users: dict[str, _UserConnection] = {}
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
        return clean_text(self._refused or self._connection.reason, _MAX_MESSAGE_CHARS)

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
        """Its definitions that can be used, by their names here."""
        return MappingProxyType({name: tool.raw for name, tool in self._tools.items()})

    @property
    def stderr(self) -> str:
        """The end of what it wrote to standard error."""
        transport = self._connection.transport
        return transport.stderr if isinstance(transport, StdioTransport) else ""

    async def start(self) -> None:
        """Connect, and return after the first attempt."""
        if self.config.is_local and self._given_transport is None and not self._program:
            with suppress(SandboxSetupError, ConfigurationError, OSError):
                self._program = await asyncio.to_thread(self._launcher.describe, self.config)
        await self._connection.start()
        if self._connection.state == "connected":
            return
        if self.config.consent is not None and self._listed is None:
            self._offer_pinned()
        elif self._is_early:
            self._is_early, self._listed, self._basis = False, None, None
            self._update(self.name, ())
            self._tools, self.quarantined, self.problems = {}, {}, {}
            self._on_change()

    def offer_early(self) -> None:
        """Offer what was accepted before, until the server is tried: it lists the same tools, or some are in quarantine
        then. A call waits for the connection, and its tool is compared again.
        """
        is_new = self.config.consent is None and self._listed is None
        if is_new and self.config.pins != "off" and self.pins.find(self.name):
            self._offer_pinned()
            self._is_early = self._listed is not None

    @property
    def is_listed(self) -> bool:
        """True when its tools are known, or were accepted before."""
        return self._listed is not None

    @property
    def is_accepted(self) -> bool:
        """True when its tools are exactly those that were accepted."""
        if self._listed is None or self._refused or self.quarantined or self.config.pins == "off":
            return False
        return (
            self.config.consent is None
            and {tool.name for tool in self._listed} == (self.pins.find(self.name) or {}).keys()
        )

    async def refresh(self) -> None:
        """List the tools now. A server that cannot be reached keeps the ones it had."""
        with suppress(ServerUnavailableError, InvalidResultError, MCPError):
            await self._connection.list_tools()

    async def answer(self, client: Client, asked: InputRequiredResult) -> dict[str, Any]:
        """Return the answers to what the server wants to know before it continues with another request than a call."""
        return await self._connection.answer(client, asked)

    def forget(self) -> None:
        """Forget connections whose event loop is gone."""
        self._users = {}
        self._connection = self._new_connection()

    async def close(self) -> None:
        """End its connections."""
        users = [user.connection for user in self._users.values() if user.connection is not None]
        await asyncio.gather(self._connection.close(), *(connection.close() for connection in users))

    def check_pins(self) -> None:
        """Decide again about the tools that were listed last: what is accepted has changed."""
        if self._listed is not None:
            self._on_tools(self._listed)

    def accept(self, names: Sequence[str] | None = None) -> list[str]:
        """Accept definitions as they are now, by the names that the server gives them. None: all of them, and forget
        those that are gone. Return the names.
        """
        usable = {raw.name: tool for raw in self._listed or () if (tool := read_tool(self.name, raw)).problem == ""}
        chosen = {name: tool for name, tool in usable.items() if names is None or name in names}
        if names is not None and (missing := [name for name in names if name not in usable]):
            raise ConfigurationError(f"The server {self.name} has no tool {missing[0]!r} that can be used.")
        self.pins.accept(self.name, {name: tool.document for name, tool in chosen.items()}, whole=names is None)
        self.check_pins()
        return sorted(chosen)

    def list_facts(self, recorded: ToolSourceEntry | None) -> list[SourceFact]:
        """Return what a run has to record, given what it has recorded of this server."""
        facts: list[SourceFact] = []
        known = recorded or ToolSourceEntry()
        client = self.client
        if client is not None and known.connection != self._connection_id:
            facts.append(SourceFact(self._describe_connection(client)))
        elif client is None and (known.connection or recorded is None) and self._connection.state == "lost":
            facts.append(SourceFact(McpServerLost(server=self.name, reason=self.reason)))
        if self._listed is None or self._is_early or (recorded is None and not facts):
            return facts
        versions = {name: tool.digest for name, tool in self._tools.items()}
        versions |= {name: held.tool.digest for name, held in self.quarantined.items()}
        held = tuple(sorted(self.quarantined))
        content = json.encode([tool.document for tool in self._tools.values()])
        if known.versions is None:
            listed = McpToolsListed(server=self.name, versions=versions, quarantined=held)
            return [*facts, SourceFact(listed, content)]
        added = {name: digest for name, digest in versions.items() if name not in known.versions}
        changed = {name: digest for name, digest in versions.items() if known.versions.get(name, digest) != digest}
        removed = tuple(sorted(known.versions.keys() - versions.keys()))
        if added or changed or removed or held != known.quarantined:
            difference = McpToolsChanged(
                server=self.name, added=added, changed=changed, removed=removed, quarantined=held, diff=self.diff
            )
            facts.append(SourceFact(difference, content))
        return facts

    @property
    def diff(self) -> str:
        """How the tools in quarantine differ from what was accepted."""
        parts = [f"{name}: {held.deviation.kind}\n{held.deviation.diff}" for name, held in self.quarantined.items()]
        return shorten("\n".join(parts), _MAX_DIFF_CHARS)

    def _describe_connection(self, client: Client) -> McpServerConnected:
        info = client.server_info
        return McpServerConnected(
            server=self.name,
            connection=self._connection_id,
            command=self.config.command,
            url=self.config.url,
            executable=self._program.get("executable", ""),
            executable_sha256=self._program.get("sha256", ""),
            protocol=client.protocol_version,
            server_name=clean_text(info.name, 200) if info is not None else "",
            server_version=clean_text(info.version, 200) if info is not None else "",
            reach=self._program.get("reach", {}),
        )

    def _new_connection(self) -> Connection:
        return Connection(self._open_transport, self._choose_relays(), self._on_tools, self._on_state)

    def _choose_relays(self) -> Relays:
        """Declare what the configuration relays, and nothing else. Without a relay, the answer is a refusal."""
        relay = self.config.relay
        return Relays(
            elicitation=self._elicit if "elicitation" in relay else None,
            sampling=self._sample if "sampling" in relay else None,
            roots=self._list_roots if "roots" in relay else None,
            server=self.name,
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
        if self.config.url:
            transport = HttpTransport(
                self.config.url,
                self.config.read_headers,
                auth=self._auth,
                add_secret=self._add_secret,
                on_refused=on_end,
            )
            return WatchedTransport(transport, on_end)
        return StdioTransport(lambda fd, output: self._launcher.start(self.config, fd, output), on_end)

    async def _list_roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        if self.relays.roots is not None:
            return await self.relays.roots(context)
        return ListRootsResult(roots=[Root(uri=FileUrl(f"file://{self._launcher.root}"))])

    def _on_state(self) -> None:
        if self._connection.state == "connected":
            self._connection_id = uuid4().hex[:16]
        self._on_change()

    def _offer_pinned(self) -> None:
        """Offer what was accepted of a server that lists nothing without a user. Each user's list is compared."""
        with suppress(ValidationError):
            self._on_tools([Tool.model_validate(document) for document in (self.pins.find(self.name) or {}).values()])

    def _on_tools(self, listed: list[Tool]) -> None:
        """Take over a list of tools."""
        self._listed, self._is_early = listed, False
        chosen = [raw for raw in listed if any(fnmatchcase(raw.name, pattern) for pattern in self.config.tools)]
        tools = [read_tool(self.name, raw) for raw in chosen]
        names = [tool.name for tool in tools]
        if double := next((name for name in names if names.count(name) > 1), ""):
            self._refuse(f"two of its tools would be called {double!r}")
            return
        pinned = self._find_pins(tools)
        basis = [(tool.raw.name, tool.digest) for tool in tools], None if pinned is None else dict(pinned)
        if basis == self._basis and not self._refused:
            return
        usable: dict[str, ForeignTool] = {}
        quarantined: dict[str, Quarantine] = {}
        problems: dict[str, str] = {}
        definitions: list[ToolDefinition] = []
        for tool in tools:
            problem = tool.problem
            deviation = None if pinned is None else find_deviation(tool, pinned)
            if deviation is not None and not (problem and deviation.kind == "new"):
                quarantined[tool.name] = Quarantine(tool, deviation)
                definitions.append(build_quarantined(tool, self.config, self._explain(tool, deviation), self._owner))
                continue
            if not problem:
                try:
                    definitions.append(self._define(tool))
                    usable[tool.name] = tool
                except ToolDeclarationError as error:
                    problem = str(error)
            if problem:
                problems[clean_text(tool.raw.name, 100)] = clean_text(problem, _MAX_MESSAGE_CHARS)
        if taken := self._update(self.name, definitions):
            self._refuse(taken)
            return
        self._refused, self._tools, self._basis = "", usable, basis
        self.quarantined, self.problems = MappingProxyType(quarantined), MappingProxyType(problems)
        self._on_change()

    def _find_pins(self, tools: list[ForeignTool]) -> Mapping[str, JsonObject] | None:
        """Return the accepted definitions; None when nothing is compared."""
        if self.config.pins == "off":
            return None
        pinned = self.pins.find(self.name)
        if pinned is None and self.config.pins == "first_use":
            pinned = self.pins.accept_first(
                self.name, {tool.raw.name: tool.document for tool in tools if not tool.problem}
            )
        return pinned or {}

    def _explain(self, tool: ForeignTool, deviation: Deviation) -> str:
        what = "is not accepted yet" if deviation.kind == "new" else "changed since it was accepted"
        name = clean_text(tool.raw.name, 100)
        return (
            f"The definition of {name} of the MCP server {self.name} {what}, so it is in quarantine. A person sees it "
            f"with `interlock mcp diff {self.name}` and accepts it with `interlock mcp accept {self.name}/{name}`."
        )

    def _refuse(self, reason: str) -> None:
        """Use none of its tools."""
        self._update(self.name, ())
        self._refused, self._tools = reason, {}
        self.quarantined, self.problems = {}, {}
        self._on_change()

    def _define(self, tool: ForeignTool) -> ToolDefinition:
        async def call(arguments: JsonObject, context: ToolContext) -> NormalizedOutput:
            return await self._call(tool, definition, arguments, context)

        definition = build_definition(tool, self.config, call, self._owner)
        if tool.raw.output_schema is not None and tool.digest not in self._checks:
            self._checks[tool.digest] = OutputCheck(tool.raw.output_schema)
        return definition

    async def _call(
        self, tool: ForeignTool, definition: ToolDefinition, arguments: JsonObject, context: ToolContext
    ) -> NormalizedOutput:
        try:
            connection = await self._find_connection(tool, context)
            result = await self._send(connection, tool, arguments, context)
        except ServerUnavailableError as error:
            message = f"The MCP server {self.name} is not connected: {error}"
            raise PreconditionError(CheckProblem(message=message)) from None
        except ConnectionLostError as error:
            message = f"The connection to the MCP server {self.name} was lost during the call: {error}."
            is_safe = definition.read_only or definition.idempotent
            raise CallFailedError("upstream_error" if is_safe else "outcome_unknown", message) from None
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

    async def _send(
        self, connection: Connection, tool: ForeignTool, arguments: JsonObject, context: ToolContext
    ) -> CallToolResult:
        relay = CALL_RELAY.get()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if relay is not None:
                await relay.report_progress(progress, total, message)
            done = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            context.progress(clean_text(f"{done} {message or ''}", _MAX_MESSAGE_CHARS))

        if not context.access_token:
            return await connection.call(tool.raw.name, arguments, on_progress)
        # The SDK sends a request in the context that it was made in.
        token = _CALL_TOKEN.set(context.access_token)
        try:
            return await connection.call(tool.raw.name, arguments, on_progress)
        finally:
            _CALL_TOKEN.reset(token)

    async def _find_connection(self, tool: ForeignTool, context: ToolContext) -> Connection:
        """Return the connection for a call: that of the user, where the server needs their consent. Raise
        `CallFailedError` when the tool is no longer what was permitted.
        """
        if self.config.consent is not None:
            user = await self._connect_user(context)
            if user.connection is not None:
                if user.connection.state != "connected":
                    await user.connection.ready()
                if user.digests.get(tool.raw.name) != tool.digest:
                    raise self._quarantined(tool)
                return user.connection
        connection = self._connection
        if connection.state != "connected":  # what it lists then decides
            await connection.ready()
        age = asyncio.get_running_loop().time() - connection.listed_at
        if connection.is_stale or age > _LIST_SECONDS:
            await self.refresh()
        current = self._tools.get(tool.name)
        if current is None or current.digest != tool.digest:
            raise self._quarantined(tool)
        return connection

    def _quarantined(self, tool: ForeignTool) -> CallFailedError:
        message = f"{tool.name} is no longer what was permitted: its definition changed. Nothing was executed."
        return CallFailedError("tool_quarantined", message, nothing_done=True)

    async def _connect_user(self, context: ToolContext) -> _UserConnection:
        """Return the connection of the user that the run acts for, with the token that they consented to."""
        requester = context.situation.requester
        user = self._users.pop(requester, None) or _UserConnection()
        self._users[requester] = user
        user.token = context.access_token
        if user.connection is None:

            def open_transport(on_end: Callable[[str], None]) -> Transport:
                get_token = lambda: _CALL_TOKEN.get() or user.token  # noqa: E731 - of the call, or to connect
                transport = HttpTransport(
                    self.config.url, self.config.read_headers, get_token=get_token, on_refused=on_end
                )
                return WatchedTransport(transport, on_end)

            def on_tools(listed: list[Tool]) -> None:
                user.digests = {raw.name: read_tool(self.name, raw).digest for raw in listed}

            user.connection = Connection(open_transport, self._choose_relays(), on_tools, lambda: None)
            for name in list(self._users)[:-_MAX_USERS]:
                if (old := self._users.pop(name).connection) is not None:
                    await old.close()
        await user.connection.start()
        return user

    def _invalid(self, problem: str) -> CallFailedError:
        message = f"The tool ran, but the answer of the MCP server {self.name} cannot be used: {problem}."
        return CallFailedError("upstream_invalid_output", message)
