"""Stage 8: what model, user and log get to see. Secrets out, all of it kept, then cut where it must be, and said so."""

import msgspec

from ..artifacts.interface import Artifacts
from ..domain.effects import SideEffects
from ..domain.errors import ArtifactError
from ..domain.excerpt import apply_tool_output_limits
from ..domain.failure import Failure
from ..domain.observation import ArtifactRef, Content, NextTool, Observation, OutputSize
from ..domain.phase import Phase
from ..domain.result import NormalizedResult
from ..domain.tool import ToolDefinition
from ..secrets.interface import Redactor

_READER = "read_artifact"


class _Cut(msgspec.Struct, frozen=True):
    """What is left of an output that was over the limit."""

    text: str
    size: OutputSize
    artifact: ArtifactRef
    next_tool: NextTool


def observe(
    call_id: str, tool: ToolDefinition, result: NormalizedResult, artifacts: Artifacts, redactor: Redactor
) -> Observation:
    text = redactor.redact(result.model_text)
    cut = None
    if len(text) > tool.max_output_chars:
        cut = _cut(text, result, tool.max_output_chars, artifacts)
        if isinstance(cut, Failure):
            return observe_failure(call_id, tool.name, cut, redactor, result.duration_ms)
        text = cut.text
    return Observation(
        call_id=call_id,
        tool=tool.spec.name,
        ok=result.ok,
        summary=redactor.redact(result.summary) if result.summary else "",
        user_text=redactor.redact(result.user_text) if result.user_text else "",
        failure=None if result.ok else _failure(result),
        content=Content(text=text, format="text" if cut else result.format) if text else None,
        size=cut.size if cut else None,
        artifacts=(cut.artifact,) if cut else (),
        side_effects=result.side_effects,
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
        next_hint=f"The output was cut. Read the rest with {_READER}." if cut else "",
        next_tool=cut.next_tool if cut else None,
        facts=result.facts,
    )


def observe_failure(
    call_id: str, tool_name: str, failure: Failure, redactor: Redactor, duration_ms: float | None = None
) -> Observation:
    message = redactor.redact(failure.message)
    if message != failure.message:
        failure = Failure.of(failure.code, message, side_effects=failure.side_effects, details={"redacted": True})
    return Observation(
        call_id=call_id,
        tool=tool_name,
        ok=False,
        summary=message,
        failure=failure,
        side_effects=failure.side_effects,
        duration_ms=duration_ms,
    )


def withheld(result: NormalizedResult, reason: str) -> Failure:
    """An output guardrail said no: the tool ran, its output is not shown."""
    effects: SideEffects = result.side_effects
    message = f"{result.title} ran, but its output was withheld: {reason}."
    return Failure.of("output_refused", message, side_effects=effects)


def _cut(text: str, result: NormalizedResult, max_output_chars: int, artifacts: Artifacts) -> _Cut | Failure:
    content = text.encode(errors="backslashreplace")
    text = content.decode()
    try:
        kept = artifacts.keep(content)
    except (ArtifactError, OSError) as error:
        message = f"{result.title} ran, but its output of {len(content)} bytes could not be kept: {error}."
        return Failure.of("artifact_lost", message, side_effects=result.side_effects)
    excerpt = apply_tool_output_limits(text, max_output_chars)
    hint = {"artifact_id": kept, "around": excerpt.around} if excerpt.around else {"artifact_id": kept}
    return _Cut(
        excerpt.text,
        OutputSize(produced=excerpt.produced, kept=len(content), shown=excerpt.shown, omitted=excerpt.omitted),
        ArtifactRef(id=kept, kind="tool_output", size_bytes=len(content), path=artifacts.path(kept)),
        NextTool(tool=_READER, input_hint=hint),
    )


def _failure(result: NormalizedResult) -> Failure:
    """A tool that ran and says that it did not succeed."""
    return Failure(
        phase=Phase.EXECUTE,
        code=result.code,
        message=result.summary,
        retryable=result.retryable,
        side_effects=result.side_effects,
    )
