"""MCP servers for tests: one in this process whose tools and answers a test scripts, and the programs of others."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client._memory import InMemoryTransport
from mcp.server.lowlevel.server import Server

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


class ScriptedServer:
    """A server in this process. Change `tools` and `answers` at any time."""

    def __init__(self, *tools: types.Tool) -> None:
        self.tools = list(tools or (make_tool(),))
        #: By name of a tool.
        self.answers: dict[str, Answer] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.session: Any = None

    def open(self) -> InMemoryTransport:
        """Return a transport to a new server process, as it were."""
        server = Server("scripted", version="1", on_list_tools=self._list, on_call_tool=self._call)
        return InMemoryTransport(server)

    def toolbox(self, name: str = "srv", **fields: Any) -> McpTools:
        """Return a toolbox with this server alone."""
        return McpTools([ServerConfig(name=name, **fields)], transports={name: self.open})

    async def announce_change(self) -> None:
        """Send `notifications/tools/list_changed`."""
        await self.session.send_tool_list_changed()

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        self.session = context.session
        return types.ListToolsResult(tools=self.tools, ttl_ms=0, cache_scope="private")

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self.calls.append((params.name, arguments))
        if params.name in self.answers:
            return await self.answers[params.name](arguments)
        return text_result(str(arguments.get("text", "ok")))
