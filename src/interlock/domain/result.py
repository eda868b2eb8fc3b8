"""What came back from a tool, before and after it is put in one shape."""

from typing import Any, Literal, TypeAlias

import msgspec

from .call import Invocation
from .effects import SideEffect, SideEffects
from .output import NextTool, OutputSize
from .tool import JsonObject, ObservationKind, OutputFormat

Exit: TypeAlias = Literal["ok", "error", "cancelled", "timeout"]


class RawResult(msgspec.Struct, frozen=True, gc=False):
    """The handler's value as it returned it. Never shown to anybody as it is."""

    invocation: Invocation
    value: Any
    side_effects: tuple[SideEffect, ...]
    duration_ms: float


class NormalizedResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The same facts in one shape for every tool."""

    ok: bool
    code: str
    title: str
    summary: str
    model_text: str
    user_text: str
    format: OutputFormat
    side_effects: SideEffects
    exit_code: int | None
    duration_ms: float
    retryable: bool
    facts: JsonObject
    size: OutputSize | None = None
    next_hint: str = ""
    next_tool: NextTool | None = None
    kind: ObservationKind = "tool"
    state: JsonObject = {}
