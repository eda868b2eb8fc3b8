"""The outcome of one call, as the model, the user and the log see it."""

from typing import Any, Literal, TypeAlias

import msgspec

from .attachments import Attachment
from .call import Invocation
from .json import InvalidJsonError, Json, parse
from .outcome import NO_SIDE_EFFECTS, ArtifactRef, Failure, NextTool, OutputSize, SideEffect, SideEffects
from .tool import JsonObject, ObservationKind, OutputFormat

TRUST_LABEL: Literal["tool_output_untrusted"] = "tool_output_untrusted"


class Content(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """Output of a tool. Always data, never instructions."""

    text: str
    format: OutputFormat = "text"
    trust: Literal["tool_output_untrusted"] = TRUST_LABEL


class Observation(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The outcome of one call: what the model reads, and what is recorded.

    `ok` says whether it succeeded, `code` is `"ok"` or the error code, `failure` says where and why it stopped,
    `content` is the output, and `side_effects` are what it changed.
    """

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
    side_effects: SideEffects = NO_SIDE_EFFECTS
    exit_code: int | None = None
    duration_ms: float | None = None
    next_hint: str = ""
    next_tool: NextTool | None = None
    #: `verification` marks a fact about whether the goal was reached; see the verification events.
    kind: ObservationKind = "tool"
    #: Structured facts for the log.
    facts: JsonObject = {}
    #: What the run remembers of it: see `NormalizedOutput.state`.
    state: JsonObject = {}

    @property
    def truncated(self) -> bool:
        """True if part of the output was left out."""
        return self.size is not None and self.size.omitted > 0

    @property
    def code(self) -> str:
        """Code of the failure, or `ok`."""
        return self.failure.code if self.failure else "ok"


ExitStatus: TypeAlias = Literal["ok", "error", "cancelled", "timeout"]


class RawResult(msgspec.Struct, frozen=True, gc=False):
    """The unmodified return value of a handler. Never shown."""

    invocation: Invocation
    value: Any
    side_effects: tuple[SideEffect, ...]
    duration_ms: float


class NormalizedResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A handler's result in the form shared by all tools."""

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
    #: The output when it is no text: the model gets its description, and an artifact has it.
    binary: bytes = b""
    size: OutputSize | None = None
    next_hint: str = ""
    next_tool: NextTool | None = None
    kind: ObservationKind = "tool"
    state: JsonObject = {}
    attachments: tuple[Attachment, ...] = ()


DENIED_BY_POLICY = "Denied by policy"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call in short form: success, output, error message."""

    success: bool
    output: Json | None = None
    error_message: str | None = None


class ToolExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one executed call, with its latency."""

    tool_name: str
    tool_call_id: str | None
    success: bool
    output: Json | None
    error: str | None
    #: None when the handler did not run.
    latency_ms: float | None


def to_execution_record(observation: Observation) -> ToolExecutionRecord:
    """Convert an observation to the record of an execution."""
    return ToolExecutionRecord(
        tool_name=observation.tool,
        tool_call_id=observation.call_id,
        success=observation.ok,
        output=extract_output(observation),
        error=extract_error(observation),
        latency_ms=observation.duration_ms,
    )


def tool_result(observation: Observation) -> ToolResult:
    """Convert an observation to the result of a tool."""
    return ToolResult(
        success=observation.ok, output=extract_output(observation), error_message=extract_error(observation)
    )


def extract_output(observation: Observation) -> Json:
    """Return the tool's output: data where it is complete and valid JSON, else the text."""
    content = observation.content
    if content is None:
        return None
    if content.format == "json" and not observation.truncated:
        try:
            return parse(content.text)
        except InvalidJsonError:
            return content.text
    return content.text


def extract_error(observation: Observation) -> str | None:
    """Return the error message of an observation, or None if the call succeeded."""
    if observation.ok:
        return None
    if observation.code == "policy_denied":
        return DENIED_BY_POLICY
    return observation.failure.message if observation.failure else observation.summary
