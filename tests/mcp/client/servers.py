"""MCP servers for tests: one in this process whose tools and answers a test scripts, and the programs of others."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client._transport import Transport
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import ToolsListChanged

from interlock import Observation
from interlock.mcp import McpTools, ServerConfig

#: The folder of the programs that the test environment has, such as `mcp-server-time`.
PROGRAMS = Path(sys.executable).parent

Answer = Callable[[dict[str, Any]], Awaitable[types.CallToolResult]]


def text_result(text: str, **fields: Any) -> types.CallToolResult:
    """Return a result that is one text."""
    return types.CallToolResult(content=[types.TextContent(text=text)], **fields)


def make_tool(name: str = "echo", description: str = "Say it again.", **fields: Any) -> types.Tool:
    """Return the definition of a tool with one text argument, with fields as they are on the wire."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return types.Tool.model_validate({"name": name, "description": description, "inputSchema": schema} | fields)


def text_of(observation: Observation) -> str:
    """Return what a model reads of an observation."""
    return observation.content.text if observation.content is not None else ""


class _Link:
    """A transport to a server in this process, which can be cut. A legacy one does not know `server/discover`."""

    def __init__(self, server: Server[Any], *, legacy: bool) -> None:
        self._server = server
        self._legacy = legacy
        self._stack = AsyncExitStack()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Any:
        ours, (reading, self._writing) = await self._stack.enter_async_context(create_client_server_memory_streams())
        if self._legacy:
            sending, filtered = anyio.create_memory_object_stream[Any](10)
            self._running.append(asyncio.create_task(self._filter(reading, sending)))
            reading = filtered
        options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))
        self._running.append(asyncio.create_task(self._server.run(reading, self._writing, options)))
        return ours

    async def _filter(self, reading: Any, sending: Any) -> None:
        async with sending:
            await self._forward(reading, sending)

    async def _forward(self, reading: Any, sending: Any) -> None:
        async for item in reading:
            if getattr(item.message, "method", "") == "server/discover":
                error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="unknown")
                refusal = types.JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)
                await self._writing.send(SessionMessage(refusal))
            else:
                await sending.send(item)

    async def __aexit__(self, *error: object) -> None:
        await self.cut()
        await self._stack.aclose()

    async def cut(self) -> None:
        """End the server, as if its process was killed."""
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)
        await self._writing.aclose()


class ScriptedServer:
    """A server in this process. Change `tools` and `answers` at any time."""

    def __init__(self, *tools: types.Tool, legacy: bool = False) -> None:
        self.tools = list(tools or (make_tool(),))
        #: By name of a tool.
        self.answers: dict[str, Answer] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.legacy = legacy
        self.session: Any = None
        self._bus = InMemorySubscriptionBus()

    def open(self) -> Transport:
        """Return a transport to a new server process, as it were."""
        self._link = _Link(self.make_server(), legacy=self.legacy)
        return self._link

    def make_server(self) -> Server[Any]:
        """Return a server of the SDK that answers as scripted."""
        return Server(
            "scripted",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    async def drop(self) -> None:
        """Cut the connection. The next one finds a new server."""
        await self._link.cut()

    def toolbox(self, name: str = "srv", **fields: Any) -> McpTools:
        """Return a toolbox with this server alone."""
        return McpTools([ServerConfig(name=name, **fields)], transports={name: self.open})

    async def announce_change(self) -> None:
        """Send `notifications/tools/list_changed`."""
        if self.legacy:
            await self.session.send_tool_list_changed()
        else:
            await self._bus.publish(ToolsListChanged())

    @staticmethod
    def text(text: str) -> types.CallToolResult:
        """Return a result that is one text."""
        return text_result(text)

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        self.session = context.session
        return types.ListToolsResult(tools=self.tools, ttl_ms=0, cache_scope="private")

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self.calls.append((params.name, arguments))
        if params.name in self.answers:
            return await self.answers[params.name](arguments)
        return text_result(str(arguments.get("text", "ok")))
