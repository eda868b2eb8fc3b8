"""Stage 8: what model, user and log get to see. Secrets out, all of it kept, then cut where it must be, and said so."""

import asyncio
from typing import cast

import msgspec

from ..domain.attachments import ATTACHMENT, MAX_ATTACHMENTS, describe_attachment
from ..domain.errors import ArtifactError
from ..domain.file_kind import detect_media_type
from ..domain.json import encode, escape_surrogates
from ..domain.observation import Content, NormalizedResult, Observation
from ..domain.outcome import (
    ERROR_CODES,
    TOOL_OUTPUT,
    UNKNOWN_SIDE_EFFECTS,
    ArtifactRef,
    Failure,
    NextTool,
    OutputSize,
    Phase,
    SideEffect,
    SideEffects,
)
from ..domain.redaction import redact_json, redact_json_text, redact_line
from ..domain.tool import Diagnostics, JsonObject, ToolContext, ToolDefinition
from ..redaction.interface import Redactor
from ..rendering.binary import describe_binary
from ..rendering.excerpt import apply_tool_output_limits
from ..rendering.text import describe_error, shorten
from ..storage.artifacts import ArtifactStore

_READER = "read_artifact"
_MAX_LINE_CHARS = 500
_MAX_MESSAGE_CHARS = 2_000
_MAX_DIAGNOSTICS_CHARS = 6_000
#: Larger facts of a tool are an artifact; a longer hint for the next call is left out.
_MAX_FACTS_BYTES = 1 << 20
_MAX_HINT_BYTES = 4_096
_MAX_EFFECT_CHARS = 4_096
_MAX_EFFECTS_CHARS = 64_000


class StoreNeededError(Exception):
    """Something has to be stored, and there is no store in the event loop."""


class _Cut(msgspec.Struct, frozen=True):
    """What is shown of an output that was over the limit, or is binary."""

    text: str
    size: OutputSize
    artifact: ArtifactRef
    next_hint: str
    next_tool: NextTool | None = None


def observe(
    call_id: str, tool: ToolDefinition, result: NormalizedResult, artifacts: ArtifactStore | None, redactor: Redactor
) -> Observation:
    """Build the observation of a result: redacted, and cut to the limit of the tool. Without a store, raise
    `StoreNeededError` when something has to be stored.
    """
    redact, cut = redactor.redact, None
    if result.binary:
        text = redact(result.binary.decode(errors="surrogateescape"))
    elif result.format != "json":
        text = redact(result.model_text)
    else:
        text = redact_json_text(result.model_text, redact)
    attached: tuple[ArtifactRef, ...] = ()
    if result.attachments:
        if artifacts is None:
            raise StoreNeededError
        kept = _keep_attachments(result, artifacts, redactor)
        if isinstance(kept, Failure):
            return observe_failure(call_id, tool.name, kept, redactor, result.duration_ms)
        attached, lines = kept
        text = f"{text}\n{lines}" if text else lines
    if result.binary or text[tool.max_output_chars :]:
        if artifacts is None:
            raise StoreNeededError
        cut = _cut(text, result, tool.max_output_chars, artifacts)
        if isinstance(cut, Failure):
            return observe_failure(call_id, tool.name, cut, redactor, result.duration_ms)
        text = cut.text
    return Observation(
        call_id=call_id,
        tool=tool.spec.name,
        ok=result.ok,
        summary=_line(result.summary, redactor) if result.summary else "",
        user_text=_line(result.user_text, redactor) if result.user_text else "",
        failure=None if result.ok else _failure(result, redactor),
        content=Content(text=text, format="text" if cut else result.format) if text else None,
        size=cut.size if cut else result.size,
        artifacts=(*attached, cut.artifact) if cut else attached,
        side_effects=_effects(result.side_effects, redactor) if result.side_effects else (),
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
        next_hint=cut.next_hint if cut else _hint(result.next_hint, redactor) if result.next_hint else "",
        next_tool=cut.next_tool if cut else _next_tool(result.next_tool) if result.next_tool else None,
        kind=result.kind,
        facts=_limit_facts(_facts(result.facts, redactor), artifacts) if result.facts else {},
        state=_facts(result.state, redactor) if result.state else {},
    )


def with_kept(observation: Observation, context: ToolContext) -> Observation:
    """Return the observation with the artifacts that the handler stored first: the output is an excerpt of them."""
    kept = cast(object, context.kept)
    if not isinstance(kept, list):
        return observation
    refs = tuple(ref for ref in cast(list[object], kept) if isinstance(ref, ArtifactRef))
    return msgspec.structs.replace(observation, artifacts=(*refs, *observation.artifacts))


def add_diagnostics(
    observation: Observation, diagnosis: "asyncio.Future[Diagnostics | None]", redactor: Redactor
) -> Observation:
    """Return the observation with what the diagnostics of the call found: redacted, and cut. Where they failed or were
    stopped, it says so.
    """
    if diagnosis.cancelled():
        found = Diagnostics(text="Diagnostics: stopped before they ended")
    elif (error := diagnosis.exception()) is not None:
        found = Diagnostics(text=f"Diagnostics: failed: {describe_error(error)}")
    elif (result := diagnosis.result()) is not None:
        found = result
    else:
        return observation
    content, facts = observation.content, observation.facts
    text = shorten(redactor.redact(found.text), _MAX_DIAGNOSTICS_CHARS)
    if content is not None and content.text:
        text = f"{content.text}\n\n{text}"
    if "diagnostics" in facts and found.facts:
        facts = facts | _facts({"diagnostics": found.facts}, redactor)
    user_text = observation.user_text
    if found.summary:
        user_text = _line(f"{user_text or observation.summary}; {found.summary}", redactor)
    content = Content(text=text, format=content.format if content is not None else "text")
    return msgspec.structs.replace(observation, content=content, facts=facts, user_text=user_text)


def observe_failure(
    call_id: str, tool_name: str, failure: Failure, redactor: Redactor, duration_ms: float | None = None
) -> Observation:
    """Build the observation of a failure: redacted, and cut to the limits."""
    message = shorten(redact_line(failure.message, redactor.redact), _MAX_MESSAGE_CHARS)
    effects = _effects(failure.side_effects, redactor) if failure.side_effects else ()
    details = _facts(failure.details, redactor) if failure.details else {}
    failure = Failure.from_code(failure.code, message, side_effects=effects, details=details)
    return Observation(
        call_id=call_id,
        tool=tool_name,
        ok=False,
        summary=message,
        failure=failure,
        side_effects=effects,
        duration_ms=duration_ms,
    )


def withheld(result: NormalizedResult, reason: str) -> Failure:
    """Return the failure for a refused output: the tool ran, its output is not shown."""
    effects: SideEffects = result.side_effects
    message = f"{result.title} ran, but its output was withheld: {reason}."
    return Failure.from_code("output_refused", message, side_effects=effects)


def _cut(text: str, result: NormalizedResult, max_output_chars: int, artifacts: ArtifactStore) -> _Cut | Failure:
    content = text.encode(errors="surrogateescape" if result.binary else "backslashreplace")
    try:
        kept = artifacts.keep(content)
    except (ArtifactError, OSError) as error:
        message = f"{result.title} ran, but its output of {len(content)} bytes could not be kept: {error}."
        return Failure.from_code("artifact_lost", message, side_effects=result.side_effects)
    ref = ArtifactRef(id=kept, kind=TOOL_OUTPUT, size_bytes=len(content), path=artifacts.path(kept))
    if result.binary:
        size = OutputSize(produced=len(content), kept=len(content), shown=0, omitted=len(content))
        return _Cut(describe_binary(content), size, ref, "The output is binary, so it is kept and not shown.")
    excerpt = apply_tool_output_limits(content.decode(), max_output_chars)
    omitted = excerpt.omitted + (result.size.omitted if result.size is not None else 0)
    hint = {"artifact_id": kept, "around": excerpt.around} if excerpt.around else {"artifact_id": kept}
    return _Cut(
        excerpt.text,
        OutputSize(produced=excerpt.shown + omitted, kept=len(content), shown=excerpt.shown, omitted=omitted),
        ref,
        f"The output was cut. Read the rest with {_READER}.",
        NextTool(tool=_READER, input_hint=hint),
    )


def _keep_attachments(
    result: NormalizedResult, artifacts: ArtifactStore, redactor: Redactor
) -> tuple[tuple[ArtifactRef, ...], str] | Failure:
    """Store attachments, without secrets, and return them with the lines that stand for them in the text."""
    refs: list[ArtifactRef] = []
    lines: list[str] = []
    for attachment in result.attachments[:MAX_ATTACHMENTS]:
        text = redactor.redact(attachment.content.decode(errors="surrogateescape"))
        content, name = text.encode(errors="surrogateescape"), redactor.redact(attachment.name)
        try:
            kept = artifacts.keep(content)
        except (ArtifactError, OSError) as error:
            message = f"{result.title} ran, but an attachment of {len(content)} bytes could not be kept: {error}."
            return Failure.from_code("artifact_lost", message, side_effects=result.side_effects)
        refs.append(ArtifactRef(id=kept, kind=ATTACHMENT, size_bytes=len(content), path=artifacts.path(kept)))
        lines.append(describe_attachment(name, detect_media_type(content), len(content), kept))
    if (left := len(result.attachments) - MAX_ATTACHMENTS) > 0:
        lines.append(f"[{left:,} more attachments were not kept: {MAX_ATTACHMENTS} is the limit]")
    return tuple(refs), "\n".join(lines)


def _failure(result: NormalizedResult, redactor: Redactor) -> Failure:
    """Return the failure of a tool that ran and reports no success. It cannot use the runtime's error codes."""
    code = "tool_failed" if result.code == "ok" or result.code in ERROR_CODES else result.code
    return Failure(
        phase=Phase.EXECUTE,
        code=code,
        message=_line(result.summary, redactor) or f"{result.title} did not succeed.",
        retryable=result.retryable,
        side_effects=_effects(result.side_effects, redactor),
    )


def _line(text: str, redactor: Redactor) -> str:
    return shorten(redactor.redact(text), _MAX_LINE_CHARS)


def _hint(text: str, redactor: Redactor) -> str:
    return shorten(redactor.redact(text), _MAX_MESSAGE_CHARS)


def _next_tool(hint: NextTool) -> NextTool | None:
    return hint if len(encode(hint.input_hint)) <= _MAX_HINT_BYTES else None


def _effects(effects: SideEffects, redactor: Redactor) -> SideEffects:
    if effects == UNKNOWN_SIDE_EFFECTS:
        return effects

    shown: list[SideEffect] = []
    chars = 0
    for effect in effects:
        cleaned = [
            shorten(redactor.redact(text), _MAX_EFFECT_CHARS) for text in (effect.kind, effect.target, effect.detail)
        ]
        chars += sum(map(len, cleaned))
        if chars > _MAX_EFFECTS_CHARS:
            shown.append(SideEffect(kind="omitted", target=f"{len(effects) - len(shown):,} more effects"))
            break
        shown.append(SideEffect(kind=cleaned[0], target=cleaned[1], detail=cleaned[2]))
    return tuple(shown)


def _limit_facts(facts: JsonObject, artifacts: ArtifactStore | None) -> JsonObject:
    """Return the facts, or the artifact with them when they are too large for the log."""
    content = encode(facts)
    if len(content) <= _MAX_FACTS_BYTES:
        return facts
    if artifacts is None:
        raise StoreNeededError
    try:
        return {"artifact_id": artifacts.keep(content), "size_bytes": len(content)}
    except (ArtifactError, OSError):
        return {"size_bytes": len(content)}


def _facts(facts: JsonObject, redactor: Redactor) -> JsonObject:
    """Return the facts, or their redacted text where they hold a secret."""
    try:
        redacted = redact_json(facts, redactor.redact)
    except UnicodeEncodeError:
        facts = escape_surrogates(facts)
        redacted = redact_json(facts, redactor.redact)
    return facts if redacted is None else {"redacted": redacted}
