"""`Gateway`: one MCP server in front of many, with policy, approvals and the log between.

async with Gateway(gate, McpTools.from_file("mcp.toml"), principal="ana") as gateway:
    await gateway.serve_stdio()
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import mcp_types as types

from ...domain.errors import ConfigurationError
from ...gate.gate import Gate
from ..client.toolbox import McpTools
from .asking import AskOptions
from .catalog import Catalog
from .clients import principal_of_process
from .offerings import Offerings
from .relay import Relay
from .server import GatewayServer
from .stdio import read_messages
from .stdio_lines import LineConnection, open_stdio

#: A client waits this long for servers that are being started; tools of slower ones come later.
_START_SECONDS = 20.0
_KEY_BYTES = 32


class Gateway:
    """The MCP servers of a file behind a gate, as one server."""

    def __init__(
        self,
        gate: Gate,
        tools: McpTools,
        *,
        principal: str,
        options: AskOptions | None = None,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """
        Args:
            gate: Decides, asks and records. Its owner closes it.
            tools: The servers behind the gateway.
            principal: Who clients act for, where their request does not say it.
            options: How questions reach people.
            key_file: The key that seals what clients carry between two requests; it is made if missing. Default: a
                key of this process.
        """
        self._gate = gate
        self._tools = tools
        offerings = Offerings(tools.servers)
        gate.tools(tools, *offerings.tools)
        self._relay = Relay(gate.redact)
        self._relay.is_enabled = any(server.config.relay for server in tools.servers.values())
        self._starting: asyncio.Task[None] | None = None
        #: All tools were offered before their servers were started.
        self._is_listed = False
        self._notifying: asyncio.Task[None] | None = None
        self.server = GatewayServer(
            gate,
            principal_of_process(principal),
            options or AskOptions(),
            Catalog(gate, self._find_raw, self._has_quarantined, self._until_listed, offerings.tool_names),
            offerings,
            self._relay,
            os.urandom(_KEY_BYTES) if key_file is None else read_key(Path(key_file)),
            self._until_ready,
        )
        tools.on_change(self._on_change)

    async def __aenter__(self) -> "Gateway":
        self._is_listed = self._tools.offer_early()
        self._starting = asyncio.create_task(self._tools.start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in (self._starting, self._notifying):
            if task is not None:
                task.cancel()
        await self.server.close()

    async def serve_stdio(self, connection: LineConnection | None = None) -> None:
        """Serve the client at standard input and output until it leaves.

        Args:
            connection: Its lines, where they were read already.
        """
        if connection is None:
            async with open_stdio() as opened:
                await self.serve_stdio(opened)
            return
        if connection.first is not None:
            connection.first.list_sources = self._list_sources
            connection.first.on_difference = self._on_change
        server = self.server.server
        await server.run(*read_messages(connection), server.create_initialization_options())

    async def _until_listed(self) -> None:
        if not self._is_listed:
            await self._until_ready()

    async def _until_ready(self) -> None:
        """Wait for the servers that are being started, for a bounded time."""
        if self._starting is not None and not self._starting.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await asyncio.shield(self._starting)

    def _list_sources(self) -> list[str] | None:
        """Return the files that say which tools are offered; None while that is known from the servers alone."""
        return self._tools.source_files if self._tools.is_accepted else None

    def _on_change(self) -> None:
        """Inform clients, once for all changes of a moment."""
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        await self._until_ready()
        await self.server.notify_tools_changed()

    def _find_raw(self, name: str) -> types.Tool | None:
        for server in self._tools.servers.values():
            found: Any = server.tools.get(name)
            if found is not None:
                return found
        return None

    def _has_quarantined(self) -> bool:
        return any(server.quarantined for server in self._tools.servers.values())


def read_key(path: Path) -> bytes:
    """Return the key in a file that only its owner can read. It is made if missing, by the first of several
    processes.
    """
    with suppress(FileExistsError):
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, os.urandom(_KEY_BYTES))
            os.fsync(file)
            os.link(temporary, path)
        finally:
            os.close(file)
            os.unlink(temporary)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"{path} is not a key of a gateway: expected {_KEY_BYTES} bytes. Delete it.")
    return key
