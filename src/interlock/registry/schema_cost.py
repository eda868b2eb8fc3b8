"""How much work a JSON Schema can make of a value: a small schema can ask for billions of steps.

References within a schema are followed: one that leads to several others, each to several more, doubles the work with
every step. Without cycles that is bounded by the size of the schema written out. With cycles it grows with the depth of
the value, so the depth is bounded instead.
"""

from math import log
from typing import Any, NamedTuple, cast

from ..domain.json import MAX_DEPTH, JsonObject

#: Of a schema written out, and of a validation: tens of milliseconds.
_MAX_STEPS, _MAX_WORK = 20_000, 1_000_000
_MIN_DEPTH = 4
#: Keywords whose values are data, not schemas.
_DATA = frozenset({"const", "enum", "default", "examples"})
_MAX_ANCHORS = 1_000


class SchemaCost(NamedTuple):
    """What a schema costs."""

    #: Of the schema written out, with every cycle once.
    steps: int
    #: How deep a value may be.
    max_depth: int
    #: Why it cannot be used; empty: it can.
    problem: str = ""


def measure_schema(schema: JsonObject) -> SchemaCost:
    """Measure a schema that was checked to be of bounded depth."""
    reader = _Reader(schema)
    try:
        steps, back = reader.measure(schema)
    except RecursionError:
        return SchemaCost(0, 0, "its references lead on and on")
    if steps > _MAX_STEPS:
        return SchemaCost(steps, 0, f"its references unfold to more than {_MAX_STEPS:,} schemas")
    branches = max((back, *reader.branches.values()))
    depth = MAX_DEPTH if branches <= 1 else int(log(_MAX_WORK / steps) / log(branches))
    return SchemaCost(steps, min(max(depth, _MIN_DEPTH), MAX_DEPTH))


class _Reader:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._anchors: dict[str, Any] = {}
        self._collect_anchors(root)
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()
        #: How often a schema that is in a cycle comes back to one that is being read.
        self.branches: dict[int, int] = {}

    def measure(self, schema: Any) -> tuple[int, int]:
        """Return the steps of a schema, and how many references in it lead back to one that is being measured."""
        if isinstance(schema, list):
            return self._sum(cast(list[Any], schema))
        if not isinstance(schema, dict):
            return 0, 0
        key = id(cast(object, schema))
        if key in self._open:
            return 1, 1
        if key not in self._known:
            self._open.add(key)
            steps, back = self._sum(self._find_parts(cast(JsonObject, schema)))
            self._open.discard(key)
            if back:
                self.branches[key] = back
            self._known[key] = min(steps + 1, _MAX_STEPS + 1), min(back, _MAX_STEPS)
        return self._known[key]

    def _sum(self, parts: list[Any]) -> tuple[int, int]:
        measured = [self.measure(part) for part in parts]
        return sum(steps for steps, _ in measured), sum(back for _, back in measured)

    def _find_parts(self, schema: JsonObject) -> list[Any]:
        parts: list[Any] = []
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef"):
                parts.append(self._resolve(value))
            elif key not in _DATA and key not in ("$defs", "definitions"):
                parts += list(cast(JsonObject, value).values()) if key in _MAPS and isinstance(value, dict) else [value]
        return parts

    def _resolve(self, reference: object) -> Any:
        """Return what a reference leads to; nothing where that is not in this document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return self._anchors.get(str(reference))
        if not reference.startswith("#/"):
            return self._anchors.get(reference[1:]) if reference != "#" else self._root
        found: Any = self._root
        for name in reference[2:].split("/"):
            name = name.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%24", "$")  # noqa: PLW2901
            if isinstance(found, dict) and name in found:
                found = cast(JsonObject, found)[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(cast(list[Any], found)):
                found = cast(list[Any], found)[int(name)]
            else:
                return None
        return found

    def _collect_anchors(self, schema: Any) -> None:
        waiting = [schema]
        while waiting and len(self._anchors) < _MAX_ANCHORS:
            value = waiting.pop()
            if isinstance(value, dict):
                document = cast(JsonObject, value)
                for key in ("$anchor", "$dynamicAnchor", "$id"):
                    if isinstance(name := document.get(key), str):
                        self._anchors[name] = document
                waiting += document.values()
            elif isinstance(value, list):
                waiting += cast(list[Any], value)


#: Keywords whose values are schemas by name.
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
