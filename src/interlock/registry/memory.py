"""The registry of one process.

Tools are kept in a catalog that is replaced whole when a tool comes or goes, so a reader that runs at the same time
sees the old set or the new one, never half of a change. A catalog remembers the menus that were made from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec

from ..domain import json
from ..domain.errors import DuplicateToolError
from ..domain.tool import JsonObject, Menu, Mode, Origin, Situation, ToolDefinition, ToolSpec
from .decorator import tool as declare
from .interface import visibility

#: More different menus than this are made again instead of remembered.
_MENUS_KEPT = 64


class ToolRegistry:
    """The single source of truth for which tools exist. Two tools of one name are refused."""

    def __init__(self, tools: Iterable[ToolDefinition | Callable[..., Any]] = ()) -> None:
        self._catalog = _Catalog({})
        self._changing = Lock()
        for tool in tools:
            self.register(tool)

    def register(self, tool: ToolDefinition | Callable[..., Any]) -> ToolDefinition:
        """Add a tool, from the next lookup on. A bare function is declared with all defaults."""
        definition = tool if isinstance(tool, ToolDefinition) else declare(tool)
        with self._changing:
            tools = self._catalog.tools
            if definition.name in tools:
                raise DuplicateToolError(f"There is a tool {definition.name!r} already")
            self._catalog = _Catalog({**tools, definition.name: definition})
        return definition

    def unregister(self, name: str) -> ToolDefinition | None:
        """Remove a tool, from the next lookup on, and return it; None when there was none."""
        with self._changing:
            tools = dict(self._catalog.tools)
            removed = tools.pop(name, None)
            if removed is not None:
                self._catalog = _Catalog(tools)
        return removed

    def find(self, name: str) -> ToolDefinition | None:
        try:
            return self._catalog.tools[name]
        except KeyError:
            return None

    lookup = find

    def names(self) -> tuple[str, ...]:
        return tuple(self._catalog.tools)

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self._catalog.tools.values())

    def origin(self, name: str) -> Origin | None:
        """Where the tool comes from; None when there is no such tool."""
        tool = self.find(name)
        return tool.origin if tool else None

    def visible(self, situation: Situation) -> list[ToolDefinition]:
        return self._catalog.visible(situation)

    def menu(self, situation: Situation) -> Menu:
        catalog = self._catalog
        if situation.mode in catalog.menus_by_mode:
            return catalog.menus_by_mode[situation.mode]
        return catalog.menu(situation)

    def to_openai_function_tools(self, situation: Situation | None = None) -> list[JsonObject]:
        """For OpenAI's chat completions, and everybody who copied them. Without a situation: every tool."""
        return [{"type": "function", "function": _openai_function(spec)} for spec in self._specs(situation)]

    def to_openai_responses_tools(self, situation: Situation | None = None) -> list[JsonObject]:
        # That API takes schemas as strict unless told otherwise, and strict ones may have no optional field.
        return [{"type": "function", **_openai_function(spec), "strict": False} for spec in self._specs(situation)]

    def to_anthropic_tools(self, situation: Situation | None = None) -> list[JsonObject]:
        return [
            {"name": spec.name, "description": spec.description, "input_schema": _own_copy(spec)}
            for spec in self._specs(situation)
        ]

    def _specs(self, situation: Situation | None) -> Iterable[ToolSpec]:
        if situation is not None:
            return self.menu(situation).tools
        return (tool.spec for tool in self._catalog.tools.values())


class _Catalog:
    """A set of tools, by name, that does not change."""

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        self.tools = {name: tools[name] for name in sorted(tools)}
        #: Without a tool that decides by itself, the mode alone says what is visible.
        self._by_mode_alone = all(tool.visible is None for tool in tools.values())
        self.menus_by_mode: dict[Mode, Menu] = {}
        self._menus_by_names: dict[tuple[str, ...], Menu] = {}

    def visible(self, situation: Situation) -> list[ToolDefinition]:
        return [tool for tool in self.tools.values() if not visibility(tool, situation)]

    def menu(self, situation: Situation) -> Menu:
        if not self._by_mode_alone:
            return self._menu_of(self.visible(situation))
        menu = self.menus_by_mode[situation.mode] = self._menu_of(self.visible(situation))
        return menu

    def _menu_of(self, tools: list[ToolDefinition]) -> Menu:
        names = tuple(tool.name for tool in tools)
        menu = self._menus_by_names.get(names)
        if menu is None:
            if len(self._menus_by_names) >= _MENUS_KEPT:
                self._menus_by_names.clear()
            menu = self._menus_by_names[names] = _menu(tools)
        return menu


def _menu(tools: list[ToolDefinition]) -> Menu:
    specs = tuple(tool.spec for tool in tools)
    versions = {tool.name: tool.version for tool in tools}
    digest = "sha256:" + sha256(json.encode_sorted([specs, versions])).hexdigest()
    return Menu(digest=digest, tools=specs, versions=versions)


def _openai_function(spec: ToolSpec) -> JsonObject:
    return {"name": spec.name, "description": spec.description, "parameters": _own_copy(spec)}


def _own_copy(spec: ToolSpec) -> JsonObject:
    """Callers add to what they send; the definition must not notice."""
    return msgspec.json.decode(json.encode(spec.parameters_schema))
