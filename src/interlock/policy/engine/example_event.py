"""Hypothetical calls, for examples, `explain` and analysis of old runs."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from pydantic import BaseModel, ConfigDict

from ...domain.tool import CallContext, JsonObject, ResourceKind, Risk, ToolDefinition, ToolOrigin, ToolSpec
from ..interface import PolicyEvent


class ToolDefaults(msgspec.Struct, frozen=True):
    """What is known about a tool by its name alone."""

    resources: Mapping[str, ResourceKind]
    risk: frozenset[Risk]
    #: Where nothing else is known, commands are taken to run in a sandbox that works.
    contained: bool = False


_READS = ToolDefaults({"path": "path"}, frozenset({Risk.READ}))
_WRITES = ToolDefaults({"path": "path"}, frozenset({Risk.WRITE}))

_RUNS = ToolDefaults({"command": "command", "cwd": "folder"}, frozenset({Risk.EXECUTE}))
_RUNS_CONTAINED = msgspec.structs.replace(_RUNS, resources={**_RUNS.resources, "hosts": "host"}, contained=True)

#: The built-in tools.
TOOL_DEFAULTS: Mapping[str, ToolDefaults] = {
    "bash": _RUNS_CONTAINED,
    "bash_outside": _RUNS,
    "read_file": _READS,
    "grep": _READS,
    "glob": _READS,
    "list_dir": _READS,
    "write_file": _WRITES,
    "edit_file": _WRITES,
}


class AnyArguments(BaseModel):
    """The arguments of a tool whose schema is not known."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class ToolDeclaration(TypedDict, total=False):
    """What a tool declares. Missing keys are taken from its name, where that is known."""

    risk: Iterable[str]
    origin: ToolOrigin
    source: str
    resources: Mapping[str, ResourceKind]
    contained: bool


def example_event(
    tool_name: str, arguments: JsonObject, situation: CallContext | None = None, **declared: Unpack[ToolDeclaration]
) -> PolicyEvent:
    """Build the event of a hypothetical call, for explanations and tests of policies."""
    defaults = TOOL_DEFAULTS.get(tool_name, ToolDefaults({}, frozenset()))
    risks = frozenset(map(Risk, declared.get("risk", defaults.risk)))
    definition = ToolDefinition(
        spec=ToolSpec(name=tool_name, description="", parameters_schema={}),
        version="",
        handler=never_called,
        is_async=False,
        args_model=AnyArguments,
        risk=risks,
        read_only=risks == frozenset({Risk.READ}),
        origin=declared.get("origin", "local"),
        source=declared.get("source", ""),
        resources=declared.get("resources", defaults.resources),
        contained=declared.get("contained", defaults.contained),
    )
    checked = AnyArguments.model_validate(arguments)
    return PolicyEvent("call_hypothetical", definition, checked, situation or CallContext(run_id="run_hypothetical"))


def never_called(**arguments: Any) -> None:
    """Stand in for a handler: nothing executes a hypothetical or a recorded call."""
