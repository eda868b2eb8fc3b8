"""What the arguments of a call name, as far as the tool declares it."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, cast

import msgspec

from .tool import JsonObject, ResourceKind, ToolDefinition

Access: TypeAlias = Literal["read", "write"]


class Mask(msgspec.Struct, frozen=True):
    """A path that a sandbox must hide, or hold read-only, because a rule denies it whatever the tool."""

    rule_id: str
    pattern: str
    access: Access | None = None


def values_at(value: Any, names: list[str]) -> Iterator[Any]:
    """Everything that stands under a dotted name. Lists on the way count by their elements."""
    if not names:
        yield value
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from values_at(item, names)
    elif isinstance(value, dict) and names[0] in value:
        yield from values_at(value[names[0]], names[1:])


def flatten(value: Any) -> Iterator[Any]:
    """A value, or those in a list of lists of them."""
    if isinstance(value, list):
        for item in cast(list[Any], value):
            yield from flatten(item)
    else:
        yield value


def relative_to_any(absolute: str, roots: Iterable[str]) -> str | None:
    """Return a normal, absolute path from one of these folders on, "." for the folder itself; None when it is in
    none."""
    for root in roots:
        if absolute == root:
            return "."
        if absolute.startswith(root.rstrip("/") + "/"):
            return absolute[len(root.rstrip("/")) + 1 :]
    return None


def declared_paths(
    tool: ToolDefinition, arguments: JsonObject, kinds: tuple[ResourceKind, ...] = ("path",)
) -> list[str]:
    return [
        path
        for name, kind in tool.resources.items()
        if kind in kinds
        for value in values_at(arguments, name.split("."))
        for path in flatten(value)
        if isinstance(path, str)
    ]
