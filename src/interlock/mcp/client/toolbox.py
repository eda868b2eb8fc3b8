"""`McpTools`: the tools of MCP servers, for `ToolRuntime`, `Runner` and `Gate`.

    tools = McpTools.from_file("mcp.toml", workspace=".")
    runtime = ToolRuntime(tools=[tools], policy=policy)

Servers are connected when a run is opened, or by `await tools.start()`. Their tools come and go with them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Self

import httpx2

from ...domain.egress import EgressRule
from ...domain.errors import ConfigurationError, DuplicateToolError
from ...domain.state.ledger import ToolSourceEntry
from ...domain.tool import Mask, ToolDefinition
from ...registry.interface import ReplaceTools, SourceFact, Toolbox
from .launcher import Launcher
from .pins import PinStore, choose_pin_file
from .server import McpServer, OpenTransport
from .servers_file import ServerConfig, check_servers, read_servers_file


class McpTools(Toolbox):
    """The tools of MCP servers.

    tools = McpTools.from_file("mcp.toml", workspace=".")
    """

    is_dynamic = True

    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        servers: Iterable[ServerConfig],
        *,
        workspace: str | PathLike[str] | None = None,
        state: str | PathLike[str] | None = None,
        file: str | PathLike[str] | None = None,
        transports: Mapping[str, OpenTransport] | None = None,
        auth: Mapping[str, httpx2.Auth] | None = None,
    ) -> None:
        """
        Args:
            servers: The servers.
            workspace: The folder that they work in. Default: an empty one.
            state: A private folder for the pins of definitions. Default: they are kept beside the servers file.
            file: The servers file, where there is one.
            transports: By name of a server: returns a transport of the SDK, for servers in this process.
            auth: By name of a server that is reached by HTTP: adds the credentials of this process to its requests,
                such as `OAuthClientProvider` of the SDK. For tokens of users name a consent in the servers file.
        """
        self._file = None if file is None else Path(file).resolve()
        self._has_workspace = workspace is not None
        self._launcher = Launcher(None if workspace is None else str(workspace))
        self._definitions: dict[str, ToolDefinition] = {}
        self._replace: list[ReplaceTools] = []
        self._listeners: list[Callable[[], None]] = []
        self._add_secret: Callable[[str], None] = lambda value: None
        self._is_attached = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._version = 0
        folder = None if state is None else Path(state).resolve()
        self._stores: dict[Path | None, PinStore] = {}
        self._servers: dict[str, McpServer] = {}
        for config in check_servers(tuple(servers)):
            place = choose_pin_file(config, self._file, folder)
            pins = self._stores.setdefault(place, PinStore(place))
            given = (transports or {}).get(config.name)
            self._servers[config.name] = McpServer(
                config,
                launcher=self._launcher,
                pins=pins,
                owner=self,
                update=self._update,
                on_change=self._count_change,
                open_transport=given,
                auth=(auth or {}).get(config.name),
                add_secret=self._declare_secret,
            )

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        workspace: str | PathLike[str] | None = None,
        state: str | PathLike[str] | None = None,
        auth: Mapping[str, httpx2.Auth] | None = None,
    ) -> Self:
        """Read the servers from `mcp.toml`, or from a JSON file with `mcpServers`."""
        return cls(read_servers_file(path), workspace=workspace, state=state, file=path, auth=auth)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The servers, by name."""
        return MappingProxyType(self._servers)

    @property
    def root(self) -> str:
        """The folder that the servers work in; empty when none was given."""
        return self._launcher.root if self._has_workspace else ""

    @property
    def own_paths(self) -> Iterable[str]:
        """The servers file and the pins, which decide what is executed."""
        return [name for file in self.source_files for name in (file, f"{file}.lock")]

    @property
    def source_files(self) -> list[str]:
        """The servers file and the pins."""
        return [str(file) for file in (self._file, *self._stores) if file is not None]

    @property
    def is_accepted(self) -> bool:
        """True when exactly the tools that were accepted are offered."""
        return all(server.is_accepted for server in self._servers.values())

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(list(self._definitions.values()))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this whenever the tools have changed, in the event loop of the servers."""
        self._listeners.append(callback)

    def set_masks(self, masks: Callable[[str], tuple[Mask, ...]]) -> None:
        """Set the function that returns the denied paths."""
        if self._is_attached:
            raise ConfigurationError("These tools belong to another runtime, whose policy they keep to.")
        self._is_attached = True
        self._launcher.set_masks(masks)

    def set_egress(self, rules: Callable[[], tuple[EgressRule, ...]], add_secret: Callable[[str], None]) -> None:
        """Set the egress rules of the policy, and the function that declares a secret."""
        self._launcher.set_egress(rules)
        self._add_secret = add_secret
        for server in self._servers.values():
            for value in server.config.list_secrets():
                add_secret(value)

    def protect_paths(self, paths: Iterable[str]) -> None:
        """Hide files of the runtime from the servers."""
        self._launcher.protect_paths(paths)

    def set_registry(self, replace: ReplaceTools) -> None:
        """Set the function that changes the tools of a registry."""
        self._replace.append(replace)

    async def start(self) -> None:
        """Connect all servers, and add their tools. Return when each was tried once: one that cannot be reached is
        tried again later, and its tools come then.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise ConfigurationError(
                    "These MCP servers are connected in another event loop: one McpTools for each."
                )
            self._starting = None
            for server in self._servers.values():
                server.forget()
        self._loop = loop
        if self._starting is None:
            self._starting = loop.create_task(self._start())
        await asyncio.shield(self._starting)

    def offer_early(self) -> bool:
        """Offer the tools that were accepted before, while the servers are being started. Return True if that are the
        tools of every server.
        """
        for server in self._servers.values():
            server.offer_early()
        return all(server.is_listed for server in self._servers.values())

    async def _start(self) -> None:
        await asyncio.gather(*(server.start() for server in self._servers.values()))

    def sync(self) -> int:
        """Take over pins that another process accepted."""
        if any(server.quarantined for server in self._servers.values()):
            for store in self._stores.values():
                with suppress(ConfigurationError):
                    if store.reload():
                        for server in self._servers.values():
                            if server.pins is store:
                                server.check_pins()
        return self._version

    def list_facts(self, recorded: Mapping[str, ToolSourceEntry]) -> list[SourceFact]:
        """Return what a run has to record of the servers."""
        return [fact for server in self._servers.values() for fact in server.list_facts(recorded.get(server.name))]

    async def refresh(self, tool_name: str) -> None:
        """List the tools of a server again, right before an approved call."""
        tool = self._definitions.get(tool_name)
        if tool is not None:
            await self._servers[tool.source].refresh()

    async def close(self) -> None:
        """End all servers."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        self._launcher.close()

    def _declare_secret(self, value: str) -> None:
        self._add_secret(value)

    def _count_change(self) -> None:
        self._version += 1

    def _update(self, server: str, tools: Sequence[ToolDefinition]) -> str:
        """Replace the tools of a server, in all registries. Return why that is not possible; empty when it was."""
        names = [name for name, tool in self._definitions.items() if tool.source == server]
        others = self._definitions.keys() - set(names)
        if taken := next((tool.name for tool in tools if tool.name in others), ""):
            return f"{taken!r} is the name of a tool of server {self._definitions[taken].source}, too"
        try:
            for replace in self._replace:
                replace(names, tools)
        except DuplicateToolError as error:
            return f"{error}, of another origin"
        for name in names:
            del self._definitions[name]
        self._definitions |= {tool.name: tool for tool in tools}
        for listener in self._listeners:
            listener()
        return ""
