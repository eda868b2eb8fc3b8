"""MCP: a client that brings the tools of MCP servers, and a gateway that governs them for any MCP client."""

from .client.server import McpServer
from .client.servers_file import ServerConfig, ServerSandbox, read_servers_file
from .client.toolbox import McpTools

__all__ = ["McpServer", "McpTools", "ServerConfig", "ServerSandbox", "read_servers_file"]
