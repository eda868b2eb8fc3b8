"""What the model, the user and the log get to see of one call."""

from typing import Literal

import msgspec

from .effects import NONE, SideEffects
from .failure import Failure
from .output import ArtifactRef, NextTool, OutputSize
from .tool import JsonObject, ObservationKind, OutputFormat

TRUST: Literal["tool_output_untrusted"] = "tool_output_untrusted"


class Content(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Output of a tool. Data, never instructions, whoever reads it."""

    text: str
    format: OutputFormat = "text"
    trust: Literal["tool_output_untrusted"] = TRUST


class Observation(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    call_id: str
    tool: str
    ok: bool
    summary: str
    #: One line for a person; empty means the summary.
    user_text: str = ""
    failure: Failure | None = None
    content: Content | None = None
    size: OutputSize | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    side_effects: SideEffects = NONE
    exit_code: int | None = None
    duration_ms: float | None = None
    next_hint: str = ""
    next_tool: NextTool | None = None
    #: `verification` marks a fact about whether the goal was reached; see the verification events.
    kind: ObservationKind = "tool"
    #: Structured facts for the log.
    facts: JsonObject = {}
    #: What the run remembers of it: see `Normalized.state`.
    state: JsonObject = {}

    @property
    def truncated(self) -> bool:
        return self.size is not None and self.size.omitted > 0

    @property
    def code(self) -> str:
        return self.failure.code if self.failure else "ok"
