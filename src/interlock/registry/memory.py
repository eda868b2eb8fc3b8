"""The in-memory registry of one process.

Tools are kept in a set that is replaced as a whole when a tool is added or removed, so a concurrent reader
sees the old set or the new one, never half of a change. It caches the catalogs that were made from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec

from ..domain import json
from ..domain.errors import DuplicateToolError
from ..domain.tool import CallContext, JsonObject, PermissionMode, ToolCatalog, ToolDefinition, ToolOrigin, ToolSpec
from .decorator import tool as declare
from .interface import Toolbox, find_hidden_reason

#: Maximum number of cached catalogs.
_MAX_CACHED_CATALOGS = 256


class ToolRegistry:
    """The single source of truth for which tools exist. Duplicate names are refused."""

    def __init__(self, tools: Iterable[ToolDefinition | Callable[..., Any]] = ()) -> None:
        self._tool_set = _NO_TOOLS
        self._lock = Lock()
        #: The toolboxes that were added as a whole.
        self.toolboxes: list[Toolbox] = []
        self.register_all(tools)

    def register(self, tool: ToolDefinition | Callable[..., Any]) -> ToolDefinition:
        """Add a tool, from the next lookup on. A bare function is declared with all defaults."""
        added = tool if isinstance(tool, ToolDefinition) else declare(tool)
        self.replace((), (added,))
        return added

    def register_all(
        self, tools: Iterable[ToolDefinition | Callable[..., Any]], defaults: Iterable[ToolDefinition] = ()
    ) -> list[ToolDefinition]:
        """Add tools in one step, and return them. When a name is taken, `DuplicateToolError` is raised and nothing
        changes. `defaults` are added where no tool has their name.
        """
        added = [tool if isinstance(tool, ToolDefinition) else declare(tool) for tool in tools]
        if added or defaults:
            self.replace((), added, defaults)
        return added

    def unregister(self, name: str) -> ToolDefinition | None:
        """Remove a tool, from the next lookup on, and return it; None when there was none."""
        with self._lock:
            tools = dict(self._tool_set.tools)
            removed = tools.pop(name, None)
            if removed is not None:
                self._tool_set = _ToolSet(tools)
        return removed

    def replace(
        self, removed: Iterable[str], added: Iterable[ToolDefinition], defaults: Iterable[ToolDefinition] = ()
    ) -> None:
        """Remove the tools of these names and add others, in one step, from the next lookup on. When a name is taken,
        `DuplicateToolError` is raised and nothing changes; a default is left out.
        """
        with self._lock:
            tools = dict(self._tool_set.tools)
            for name in removed:
                tools.pop(name, None)
            for definition in added:
                name = definition.spec.name
                if name in tools:
                    raise DuplicateToolError(f"There is a tool {name!r} already")
                tools[name] = definition
            for definition in defaults:
                tools.setdefault(definition.spec.name, definition)
            self._tool_set = _ToolSet(tools)

    def add_toolbox(
        self, box: Toolbox, adapt: Callable[[ToolDefinition], ToolDefinition] = lambda tool: tool
    ) -> list[ToolDefinition]:
        """Add the tools of a toolbox, those that it has now and those that come. `adapt` may change each of them."""
        if any(box is known for known in self.toolboxes):
            raise DuplicateToolError("These tools were added before")
        added = [adapt(tool) for tool in box]
        self.replace((), added)
        self.toolboxes.append(box)
        box.set_registry(lambda removed, tools: self.replace(removed, map(adapt, tools)))
        return added

    def find(self, name: str) -> ToolDefinition | None:
        """Return a tool by name, or None."""
        try:
            return self._tool_set.tools[name]
        except KeyError:
            return None

    lookup = find

    def names(self) -> tuple[str, ...]:
        """List the names of all tools."""
        return tuple(self._tool_set.tools)

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self._tool_set.tools.values())

    def origin(self, name: str) -> ToolOrigin | None:
        """Return where the tool comes from; None when there is no such tool."""
        tool = self.find(name)
        return tool.origin if tool else None

    def list_visible(self, situation: CallContext) -> list[ToolDefinition]:
        """List the tools that are visible in a context."""
        return self._tool_set.list_visible(situation)

    def catalog(self, situation: CallContext) -> ToolCatalog:
        """Return the tools offered in a context. Catalogs that depend only on the mode are cached."""
        tool_set = self._tool_set
        if situation.mode in tool_set.catalogs_by_mode:
            return tool_set.catalogs_by_mode[situation.mode]
        return tool_set.catalog(situation)

    def to_openai_function_tools(self, situation: CallContext | None = None) -> list[JsonObject]:
        """Return the tools for OpenAI's chat completions and compatible APIs. Without a context: every tool."""
        return [{"type": "function", "function": _openai_function(spec)} for spec in self._specs(situation)]

    def to_openai_responses_tools(self, situation: CallContext | None = None) -> list[JsonObject]:
        """Export the visible tools for the OpenAI Responses API."""
        # That API takes schemas as strict by default, and strict ones may have no optional field.
        return [{"type": "function", **_openai_function(spec), "strict": False} for spec in self._specs(situation)]

    def to_anthropic_tools(self, situation: CallContext | None = None) -> list[JsonObject]:
        """Export the visible tools for the Anthropic Messages API."""
        return [
            {"name": spec.name, "description": spec.description, "input_schema": _copy_schema(spec)}
            for spec in self._specs(situation)
        ]

    def _specs(self, situation: CallContext | None) -> Iterable[ToolSpec]:
        if situation is not None:
            return self.catalog(situation).tools
        return (tool.spec for tool in self._tool_set.tools.values())


class _ToolSet:
    """A set of tools, by name, that does not change."""

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        self.tools = dict(sorted(tools.items()))
        self.catalogs_by_mode: dict[PermissionMode, ToolCatalog] = {}

    def list_visible(self, situation: CallContext) -> list[ToolDefinition]:
        reads_only = situation.mode == "read_only"
        return [
            tool
            for tool in self.tools.values()
            # The first part is true of most tools, and takes no call.
            if not (reads_only or tool.quarantine or tool.visible is not None)
            or not find_hidden_reason(tool, situation)
        ]

    def catalog(self, situation: CallContext) -> ToolCatalog:
        catalog = _find_catalog(self.list_visible(situation))
        # Without a tool that decides by itself, the mode alone says what is visible.
        if not [tool for tool in self.tools.values() if tool.visible is not None]:
            self.catalogs_by_mode[situation.mode] = catalog
        return catalog


_NO_TOOLS = _ToolSet({})
#: By the identities of the specs, which their catalog keeps alive, and the versions.
_catalogs: dict[tuple[object, ...], ToolCatalog] = {}


def _find_catalog(tools: list[ToolDefinition]) -> ToolCatalog:
    """Return the catalog of these tools. One that was made before is shared by all registries: it is data only."""
    key = tuple([key for tool in tools for key in (id(tool.spec), tool.version)])
    catalog = _catalogs.get(key)
    if catalog is None:
        if len(_catalogs) >= _MAX_CACHED_CATALOGS:
            _catalogs.clear()
        catalog = _catalogs[key] = _build_catalog(tools)
    return catalog


def _build_catalog(tools: list[ToolDefinition]) -> ToolCatalog:
    specs = tuple(tool.spec for tool in tools)
    versions = {tool.name: tool.version for tool in tools}
    digest = "sha256:" + sha256(json.encode_sorted([specs, versions])).hexdigest()
    return ToolCatalog(digest=digest, tools=specs, versions=versions)


def _openai_function(spec: ToolSpec) -> JsonObject:
    return {"name": spec.name, "description": spec.description, "parameters": _copy_schema(spec)}


def _copy_schema(spec: ToolSpec) -> JsonObject:
    """Copy a schema: callers may change what they send, but not the definition."""
    return msgspec.json.decode(json.encode(spec.parameters_schema))
