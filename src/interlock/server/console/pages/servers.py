"""The page of MCP servers: state, tools, and definitions in quarantine with their diff. Forms that work without
scripts; what is accepted is exactly what the page showed.
"""

import asyncio
from typing import Annotated

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ....rendering.edit_diff import DiffLine, parse_unified_diff
from ...core.errors import ConflictError
from ...core.identity.permissions import Operation
from ...core.mcp_servers import McpServerView
from ..session import Pages, Visit

_SERVER_STATES = {
    "connected": ("Connected", "success", "check"),
    "new": ("Connecting", "active", "running"),
    "lost": ("Not connected", "warning", "warning"),
    "refused": ("Refused", "danger", "cross"),
    "closed": ("Closed", "neutral", "stop"),
}
_TOOL_STATES = {
    "accepted": ("Accepted", "success", "check"),
    "changed": ("Changed", "danger", "warning"),
    "new": ("New", "warning", "warning"),
    "unusable": ("Unusable", "neutral", "cross"),
}
_ACCEPTED = "Accepted. The next call uses these definitions; approvals of the earlier ones are void."

page = Pages()


@page("GET", "/servers")
async def show(visit: Visit, said: str = "") -> Response:
    """Render the MCP servers."""
    return await _render(visit, said=_ACCEPTED if said == "accepted" else "")


@page("POST", "/servers/{server_id}/accept")
async def accept(
    visit: Visit,
    server_id: str,
    digest: Annotated[str, Meta(max_length=200)],
    tool: Annotated[str, Meta(max_length=200)] = "",
) -> Response:
    """Accept definitions as the page showed them. If they changed meanwhile, show them again."""
    try:
        names = [tool] if tool else None
        await visit.service.mcp_servers.accept(visit.principal, server_id, digest, names)
    except ConflictError as error:
        return await _render(visit, trouble=str(error), status=409)
    return RedirectResponse("/console/servers?said=accepted", 303)


async def _render(visit: Visit, *, said: str = "", trouble: str = "", status: int = 200) -> Response:
    await visit.service.guard.check(visit.principal, Operation.LIST_SERVERS)
    servers = visit.service.mcp_servers.list_servers(visit.principal).servers
    return await visit.render(
        "servers.html",
        status=status,
        # In a thread: definitions may be long.
        servers=await asyncio.to_thread(lambda: [(server, _parse_diffs(server)) for server in servers]),
        server_states=_SERVER_STATES,
        tool_states=_TOOL_STATES,
        said=said,
        trouble=trouble,
    )


def _parse_diffs(server: McpServerView) -> dict[str, list[DiffLine]]:
    return {tool.name: parse_unified_diff(tool.diff) for tool in server.quarantined}
