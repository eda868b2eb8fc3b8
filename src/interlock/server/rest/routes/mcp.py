"""MCP servers: their tools, what changed since a person accepted it, and accepting that."""

from ...core.identity.permissions import Operation
from ...core.mcp_servers import McpServerList, McpServerView
from ..caller import Call
from ..routing import Routes
from ..schemas.requests import AcceptToolsRequest

route = Routes("mcp")


@route("GET", "/mcp/servers", Operation.LIST_SERVERS, McpServerList)
async def list_mcp_servers(call: Call) -> McpServerList:
    """List the MCP servers of agents and of the gateway, with their tools."""
    return call.service.mcp_servers.list_servers(call.principal)


@route("GET", "/mcp/servers/{server_id}", Operation.READ_SERVERS, McpServerView)
async def get_mcp_server(call: Call, server_id: str) -> McpServerView:
    """Return one MCP server. Tools in quarantine have a diff to the definition that was accepted."""
    return await call.service.mcp_servers.get(call.principal, server_id)


@route("POST", "/mcp/servers/{server_id}/accept", Operation.ACCEPT_TOOLS, McpServerView)
async def accept_mcp_tools(call: Call, server_id: str, body: AcceptToolsRequest) -> McpServerView:
    """Accept definitions in quarantine, exactly as they were shown with the digest. Others are refused with 409."""
    return await call.service.mcp_servers.accept(call.principal, server_id, body.digest, body.tools)
