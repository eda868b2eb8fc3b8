"""Sets of tools made from other sets: fewer, or under other names. Nothing is changed in place."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..domain.errors import DuplicateToolError, ToolDeclarationError
from ..domain.tool import ToolDefinition
from .decorator import check_name, definition_digest


def filtered(tools: Iterable[ToolDefinition], keep: Callable[[ToolDefinition], bool]) -> tuple[ToolDefinition, ...]:
    return tuple(tool for tool in tools if keep(tool))


def prefixed(tools: Iterable[ToolDefinition], prefix: str) -> tuple[ToolDefinition, ...]:
    return _distinct(_under_name(tool, prefix + tool.name) for tool in tools)


def renamed(tools: Iterable[ToolDefinition], names: Mapping[str, str]) -> tuple[ToolDefinition, ...]:
    """`names` maps old names to new ones; the others stay. An old name that no tool has is a mistake."""
    tools = tuple(tools)
    unknown = sorted(names.keys() - {tool.name for tool in tools})
    if unknown:
        raise ToolDeclarationError(f"There is no tool {', '.join(unknown)} to rename")
    return _distinct(_under_name(tool, names.get(tool.name, tool.name)) for tool in tools)


def _under_name(tool: ToolDefinition, name: str) -> ToolDefinition:
    if name == tool.name:
        return tool
    check_name(name)
    named = msgspec.structs.replace(tool, spec=msgspec.structs.replace(tool.spec, name=name))
    if tool.version != definition_digest(tool):
        return named
    # The name is part of what the digest covers; a version that the developer gave stays.
    return msgspec.structs.replace(named, version=definition_digest(named))


def _distinct(tools: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    by_name: dict[str, ToolDefinition] = {}
    for tool in tools:
        if tool.name in by_name:
            raise DuplicateToolError(f"Two tools would be called {tool.name!r}")
        by_name[tool.name] = tool
    return tuple(by_name.values())
