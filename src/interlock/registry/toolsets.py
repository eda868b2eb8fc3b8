"""Toolsets derived from others: filtered, or renamed. Nothing is changed in place."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..domain.errors import DuplicateToolError, ToolDeclarationError
from ..domain.tool import ToolDefinition
from .decorator import check_name, derive_version


def filter_tools(tools: Iterable[ToolDefinition], keep: Callable[[ToolDefinition], bool]) -> tuple[ToolDefinition, ...]:
    """Return the tools that a predicate keeps."""
    return tuple(tool for tool in tools if keep(tool))


def prefix_tools(tools: Iterable[ToolDefinition], prefix: str) -> tuple[ToolDefinition, ...]:
    """Return the tools with a prefix before their names. Raise if names collide."""
    return _require_distinct(_rename_tool(tool, prefix + tool.name) for tool in tools)


def rename_tools(tools: Iterable[ToolDefinition], names: Mapping[str, str]) -> tuple[ToolDefinition, ...]:
    """Return the tools renamed. `names` maps old names to new ones; an unknown old name is an error."""
    tools = tuple(tools)
    unknown = sorted(names.keys() - {tool.name for tool in tools})
    if unknown:
        raise ToolDeclarationError(f"There is no tool {', '.join(unknown)} to rename")
    return _require_distinct(_rename_tool(tool, names.get(tool.name, tool.name)) for tool in tools)


def _rename_tool(tool: ToolDefinition, name: str) -> ToolDefinition:
    if name == tool.name:
        return tool
    check_name(name)
    named = msgspec.structs.replace(tool, spec=msgspec.structs.replace(tool.spec, name=name))
    if tool.version != derive_version(tool):
        return named
    # The name is part of what the digest covers; a version that the developer gave stays.
    return msgspec.structs.replace(named, version=derive_version(named))


def _require_distinct(tools: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    by_name: dict[str, ToolDefinition] = {}
    for tool in tools:
        if tool.name in by_name:
            raise DuplicateToolError(f"Two tools would be called {tool.name!r}")
        by_name[tool.name] = tool
    return tuple(by_name.values())
