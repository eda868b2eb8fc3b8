"""The tools that a client is offered: those that are visible for its principal, always in the same order."""

from collections.abc import Awaitable, Callable, Container

import mcp_types as types

from ...domain.tool import ToolSpec
from ...gate.gate import Gate
from .clients import Caller

#: For so long a client may use a list without asking again, while no tool is in quarantine.
_TTL_MS = 60_000


class Catalog:
    """Lists the tools of a gate as MCP tools."""

    def __init__(
        self,
        gate: Gate,
        find_raw: Callable[[str], types.Tool | None],
        has_quarantined: Callable[[], bool],
        until_listed: Callable[[], Awaitable[None]],
        hidden: Container[str] = (),
    ) -> None:
        self._gate = gate
        #: Names of tools that the gateway uses itself.
        self._hidden = hidden
        #: Waits for servers that are being started, where their tools are not known.
        self._until_listed = until_listed
        #: Finds the definition of a tool as its server gave it.
        self._find_raw = find_raw
        self._has_quarantined = has_quarantined

    async def list_tools(self, caller: Caller) -> types.ListToolsResult:
        """Return the tools for a client."""
        await self._until_listed()
        specs = self._gate.catalog(requester=caller.principal, agent=caller.client).tools
        return types.ListToolsResult(
            tools=[self._convert(spec) for spec in specs if spec.name not in self._hidden],
            ttl_ms=0 if self._has_quarantined() else _TTL_MS,
            cache_scope="private",
        )

    def _convert(self, spec: ToolSpec) -> types.Tool:
        raw = self._find_raw(spec.name)
        if raw is not None:
            return raw.model_copy(update={"name": spec.name, "description": spec.description})
        return types.Tool(name=spec.name, description=spec.description, input_schema=dict(spec.parameters_schema))
