"""One call as a record of what it returned: the shape that callers of a runtime read."""

import msgspec

from .json import BadJson, Json, parse
from .observation import Observation

DENIED_BY_POLICY = "Denied by policy"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    success: bool
    output: Json | None = None
    error_message: str | None = None


class ToolExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    tool_name: str
    tool_call_id: str | None
    success: bool
    output: Json | None
    error: str | None
    #: None when the handler did not run.
    latency_ms: float | None


def execution_record(observation: Observation) -> ToolExecutionRecord:
    return ToolExecutionRecord(
        tool_name=observation.tool,
        tool_call_id=observation.call_id,
        success=observation.ok,
        output=output_of(observation),
        error=error_of(observation),
        latency_ms=observation.duration_ms,
    )


def tool_result(observation: Observation) -> ToolResult:
    return ToolResult(success=observation.ok, output=output_of(observation), error_message=error_of(observation))


def output_of(observation: Observation) -> Json:
    """What the tool returned: data where all of it is there and is JSON, else the text."""
    content = observation.content
    if content is None:
        return None
    if content.format == "json" and not observation.truncated:
        try:
            return parse(content.text)
        except BadJson:
            return content.text
    return content.text


def error_of(observation: Observation) -> str | None:
    if observation.ok:
        return None
    if observation.code == "policy_denied":
        return DENIED_BY_POLICY
    return observation.failure.message if observation.failure else observation.summary
