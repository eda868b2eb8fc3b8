"""MCP: a client that brings the tools of MCP servers, and a gateway that governs them for any MCP client."""

from .. import lazy_package

_NAMES = {
    "mcp.client.server": ("McpServer",),
    "mcp.client.servers_file": ("ServerConfig", "ServerSandbox", "read_servers_file"),
    "mcp.client.toolbox": ("McpTools",),
}

lazy_package(__name__, _NAMES)
