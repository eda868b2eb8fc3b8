"""A call that nobody made: what examples, `explain` and a look at old runs ask a policy about."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from pydantic import BaseModel, ConfigDict

from ...domain.tool import JsonObject, Origin, ResourceKind, Risk, Situation, ToolDefinition, ToolSpec
from ..interface import PolicyEvent


class Family(msgspec.Struct, frozen=True):
    """What is known of a tool by its name alone."""

    resources: Mapping[str, ResourceKind]
    risk: frozenset[Risk]


_READS = Family({"path": "path"}, frozenset({Risk.READ}))
_WRITES = Family({"path": "path"}, frozenset({Risk.WRITE}))

_RUNS = Family({"command": "command", "cwd": "folder"}, frozenset({Risk.EXECUTE}))

#: The built-in tools.
FAMILIES: Mapping[str, Family] = {
    "bash": _RUNS,
    "bash_outside": _RUNS,
    "read_file": _READS,
    "grep": _READS,
    "glob": _READS,
    "list_dir": _READS,
    "write_file": _WRITES,
    "edit_file": _WRITES,
}


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Declared(TypedDict, total=False):
    """What the tool declares. What is not given is taken from its name, where that is known."""

    risk: Iterable[str]
    origin: Origin
    source: str
    resources: Mapping[str, ResourceKind]


def hypothetical(
    tool_name: str, arguments: JsonObject, situation: Situation | None = None, **declared: Unpack[Declared]
) -> PolicyEvent:
    family = FAMILIES.get(tool_name, Family({}, frozenset()))
    risks = frozenset(map(Risk, declared.get("risk", family.risk)))
    definition = ToolDefinition(
        spec=ToolSpec(name=tool_name, description="", parameters_schema={}),
        version="",
        handler=_nothing,
        is_async=False,
        args_model=_Anything,
        risk=risks,
        read_only=risks == frozenset({Risk.READ}),
        origin=declared.get("origin", "local"),
        source=declared.get("source", ""),
        resources=declared.get("resources", family.resources),
    )
    checked = _Anything.model_validate(arguments)
    return PolicyEvent("call_hypothetical", definition, checked, situation or Situation(run_id="run_hypothetical"))


def _nothing(**arguments: Any) -> None:
    """It is never called: nothing executes a hypothetical call."""
