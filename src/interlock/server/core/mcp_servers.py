"""The MCP servers whose tools the agents of this server and its gateway use: their state, their tools, what changed
since a person accepted it, and accepting that.

A definition is accepted as it was shown: the request names the digest of all differences, and nothing is accepted when
one of them is another by then.
"""

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ... import mcp
from ...domain.errors import ConfigurationError
from ...domain.json import encode_sorted
from ...redaction.redactor import SecretRedactor
from ...rendering.text import shorten, shorten_line
from .errors import ConflictError, InvalidRequestError, not_found_error
from .identity.guard import AccessGuard
from .identity.permissions import Operation, RunOwnershipData, is_allowed
from .identity.principal import Principal
from .runs.served_agent import ServedAgent
from .settings import McpTable

if TYPE_CHECKING:
    from ...mcp.client.server import McpServer
    from ...mcp.client.toolbox import McpTools

_MAX_DESCRIPTION_CHARS = 500
_MAX_INSTRUCTIONS_CHARS = 4_000

#: `changed` and `new` are in quarantine until a person accepts them; `unusable` cannot be used as it is.
ToolState: TypeAlias = Literal["accepted", "changed", "new", "unusable"]
ServerState: TypeAlias = Literal["new", "connected", "lost", "refused", "closed"]


class McpToolView(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an MCP server."""

    name: str
    #: Its name at the server, and what that says of it. Untrusted.
    upstream_name: str
    description: str = ""
    state: ToolState
    #: The digest of the whole definition.
    digest: str = ""
    #: In quarantine: how the definition differs from the accepted one, in lines of a unified diff.
    diff: str = ""
    #: Why it cannot be used as it is.
    problem: str = ""


class McpServerView(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server."""

    #: Its name, after the agent that uses it: `support:fs`. The agent of those behind `/mcp` is `gateway`.
    id: str
    name: str
    agent: str
    state: ServerState
    #: Why it is not connected, or refused.
    reason: str = ""
    transport: Literal["stdio", "http"]
    #: The command line, or the URL.
    address: str
    #: What a local server can access; `off`: everything that this server can.
    sandbox: str = ""
    trust: str
    pins: str
    protocol: str = ""
    #: What it says of itself. Untrusted.
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    tools: tuple[McpToolView, ...] = ()
    #: The digest of all differences; empty when there are none. To accept some of them, send it.
    changes_digest: str = ""
    #: Whether the caller may accept them.
    can_accept: bool = False

    @property
    def quarantined(self) -> tuple[McpToolView, ...]:
        """The tools that are not used until a person accepts them."""
        return tuple(tool for tool in self.tools if tool.state in ("changed", "new"))


def add_mcp_tools(served: Sequence[ServedAgent], table: McpTable, state: str) -> list[ServedAgent]:
    """Give the tools of the servers file to the agents that the settings name, each with connections of its own."""
    if unknown := [name for name in table.agents if name not in {each.name for each in served}]:
        raise ConfigurationError(f"[mcp] agents names {unknown[0]!r}, which is not served here. Nothing was started.")
    if table.agents and not table.servers_path:
        raise ConfigurationError("[mcp] agents needs servers_path. Nothing was started.")
    return [_add_tools(each, open_tools(table, state)) if each.name in table.agents else each for each in served]


def open_tools(table: McpTable, state: str) -> "McpTools":
    """Return the tools of the servers file. They are connected when they are started."""
    try:
        return mcp.McpTools.from_file(table.servers_path, workspace=table.workspace or None, state=state)
    except ModuleNotFoundError as missing:
        raise ConfigurationError("[mcp] needs more than the server: pip install 'interlock[mcp]'") from missing


def _add_tools(served: ServedAgent, tools: "McpTools") -> ServedAgent:
    agent = msgspec.structs.replace(served.agent, tools=[*served.agent.tools, tools])
    return msgspec.structs.replace(served, agent=agent)


class McpServerList(msgspec.Struct, frozen=True, kw_only=True):
    """MCP servers."""

    servers: list[McpServerView]


class McpServerService:
    """Lists the MCP servers, and accepts definitions of their tools."""

    def __init__(self, guard: AccessGuard) -> None:
        self._guard = guard
        self._sources: list[tuple[str, McpTools]] = []
        self._redactor = SecretRedactor()
        self._starting: list[asyncio.Task[None]] = []

    def add(self, tools: "McpTools", agent: str) -> None:
        """Show the servers of these tools, which the agent uses."""
        self._sources.append((agent, tools))
        for server in tools.servers.values():
            for secret in server.config.list_secrets():
                self._redactor.add_secret(secret)

    def start(self) -> None:
        """Begin to connect all servers, so that their state is known before a run uses them."""
        self._starting = [asyncio.create_task(tools.start()) for _, tools in self._sources]

    async def stop(self) -> None:
        """Stop connecting. The owners of the tools close them."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    def list_servers(self, principal: Principal) -> McpServerList:
        """Return the servers that the principal may see, agent by agent."""
        visible = [
            self._view(principal, agent, tools, server)
            for agent, tools in self._iterate_sources()
            if is_allowed(principal, Operation.READ_SERVERS, RunOwnershipData(agent=agent))
            for server in tools.servers.values()
        ]
        return McpServerList(servers=visible)

    async def get(self, principal: Principal, server_id: str) -> McpServerView:
        """Return one server."""
        return self._view(principal, *await self._find(principal, server_id, Operation.READ_SERVERS))

    async def accept(
        self, principal: Principal, server_id: str, digest: str, names: Sequence[str] | None = None
    ) -> McpServerView:
        """Accept definitions in quarantine, exactly as they were shown with this digest. `names`: their names here;
        None: all of them. Recorded in the audit log.
        """
        agent, tools, server = await self._find(principal, server_id, Operation.ACCEPT_TOOLS)
        view = self._view(principal, agent, tools, server)
        if not view.changes_digest:
            raise ConflictError("nothing_to_accept", f"No tool of {server_id} is in quarantine. Nothing was changed.")
        if digest != view.changes_digest:
            raise ConflictError(
                "definitions_changed",
                f"The definitions of {server_id} are not those that were shown. Nothing was accepted. Look again.",
                {"expected": view.changes_digest, "actual": digest[:200]},
            )
        acceptable = {tool.name: tool for tool in view.quarantined if not tool.problem}
        chosen = list(acceptable) if names is None else list(dict.fromkeys(names))
        unknown = [name for name in chosen if name not in acceptable] if chosen else ["none"]
        if unknown:
            raise InvalidRequestError("tools", f"must be tools in quarantine that can be used; found {unknown[0]!r}")
        # Nothing is awaited since the comparison, so what is accepted is what was compared.
        server.accept([server.quarantined[name].tool.raw.name for name in chosen])
        detail = {"tools": ", ".join(f"{name} {acceptable[name].digest}" for name in chosen), "digest": digest}
        await self._guard.record_operation(principal, Operation.ACCEPT_TOOLS, server_id, detail)
        return self._view(principal, agent, tools, server)

    def _iterate_sources(self) -> Iterable[tuple[str, "McpTools"]]:
        for agent, tools in sorted(self._sources, key=lambda source: source[0]):
            tools.sync()  # what another process accepted
            yield agent, tools

    async def _find(
        self, principal: Principal, server_id: str, operation: Operation
    ) -> "tuple[str, McpTools, McpServer]":
        agent, _, name = server_id.rpartition(":")
        owner = RunOwnershipData(agent=agent)
        for used_by, tools in self._iterate_sources():
            if used_by == agent and name in tools.servers and is_allowed(principal, Operation.READ_SERVERS, owner):
                await self._guard.check(principal, operation, owner, server_id)
                return agent, tools, tools.servers[name]
        raise not_found_error("server", server_id)

    def _view(self, principal: Principal, agent: str, toolbox: "McpTools", server: "McpServer") -> McpServerView:
        config, info, redact = server.config, server.info, self._redactor.redact
        versions = {definition.name: definition.version for definition in toolbox}
        tools = [
            McpToolView(
                name=name,
                upstream_name=redact(raw.name),
                description=redact(shorten_line(raw.description or "", _MAX_DESCRIPTION_CHARS)),
                state="accepted",
                digest=versions.get(name, ""),
            )
            for name, raw in server.tools.items()
        ]
        tools += [
            McpToolView(
                name=name,
                upstream_name=redact(held.tool.raw.name),
                description=redact(shorten_line(held.tool.raw.description or "", _MAX_DESCRIPTION_CHARS)),
                state=held.deviation.kind,
                digest=held.tool.digest,
                diff=redact(held.deviation.diff),
                problem=redact(held.tool.problem),
            )
            for name, held in server.quarantined.items()
        ]
        tools += [
            McpToolView(name=name, upstream_name=name, state="unusable", problem=redact(problem))
            for name, problem in server.problems.items()
        ]
        owner = RunOwnershipData(agent=agent)
        return McpServerView(
            id=f"{agent}:{server.name}",
            name=server.name,
            agent=agent,
            state=server.state,
            reason=redact(server.reason),
            transport="stdio" if config.is_local else "http",
            address=redact(shorten(" ".join(config.command) or config.url, _MAX_DESCRIPTION_CHARS)),
            sandbox=_describe_sandbox(server) if config.is_local else "",
            trust=config.trust,
            pins=config.pins,
            protocol=server.protocol,
            server_name="" if info is None else redact(shorten_line(info.name, _MAX_DESCRIPTION_CHARS)),
            server_version="" if info is None else redact(shorten_line(info.version, _MAX_DESCRIPTION_CHARS)),
            instructions=redact(shorten(server.instructions, _MAX_INSTRUCTIONS_CHARS)),
            tools=tuple(sorted(tools, key=lambda tool: tool.name)),
            changes_digest=_digest_changes(server),
            can_accept=is_allowed(principal, Operation.ACCEPT_TOOLS, owner),
        )


def _digest_changes(server: "McpServer") -> str:
    """Return the digest of all differences: the accepted and the current definition of each tool."""
    if not server.quarantined:
        return ""
    pinned = server.pins.find(server.name) or {}
    changes = [
        [held.tool.raw.name, held.tool.digest, pinned.get(held.tool.raw.name)] for held in server.quarantined.values()
    ]
    return "sha256:" + sha256(encode_sorted([server.name, changes])).hexdigest()


def _describe_sandbox(server: "McpServer") -> str:
    sandbox = server.config.sandbox
    if sandbox is None:
        return "off"
    writes = f"writes {', '.join(sandbox.write)}" if sandbox.write else "workspace read-only"
    network = f"reaches {', '.join(sandbox.network)}" if sandbox.network else "no network"
    reads = f"reads {', '.join(sandbox.read)}" if sandbox.read else ""
    return ", ".join(filter(None, (writes, reads, network)))
