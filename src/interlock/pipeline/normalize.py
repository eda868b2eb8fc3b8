"""Stage 7: one shape for every tool's result. The raw value goes no further than here."""

from collections.abc import Callable
from typing import Any

from ..domain.attachments import Attachment
from ..domain.json import encode
from ..domain.observation import NormalizedResult, RawResult
from ..domain.outcome import NO_SIDE_EFFECTS, UNKNOWN_SIDE_EFFECTS, Failure, SideEffects
from ..domain.tool import RESERVED_STATE_PREFIX, JsonObject, NormalizedOutput, Risk, ToolDefinition
from ..rendering.binary import is_binary
from ..rendering.text import describe_error
from ..rendering.values import as_text, json_safe
from .parts import Parts

#: Risks of a tool whose effects are unknown when it states none.
_EFFECTFUL = frozenset({Risk.WRITE, Risk.EXECUTE, Risk.NETWORK, Risk.DELEGATE})

#: A run holds the state of all its calls, and every snapshot has it.
_MAX_STATE_BYTES = 1 << 20

_AS_IS = NormalizedOutput()
_BYTES = (bytes, bytearray)
#: What may be or hold attachments.
_HOLDERS = (Attachment, list, tuple)


async def ask_tool(
    function: Callable[[Any], NormalizedOutput], raw: RawResult, parts: Parts
) -> NormalizedOutput | Failure:
    """Let a tool that normalizes its results itself do so."""
    try:
        said: object = await parts.check(function, raw.value)
    except Exception as error:
        return _misshapen(raw, describe_error(error))
    return said if isinstance(said, NormalizedOutput) else _misshapen(raw, f"it returned {type(said).__name__}")


def normalize(raw: RawResult, said: NormalizedOutput | None = None) -> NormalizedResult | Failure:
    """Convert the raw result of a handler to text, state and side effects. `said`: what the tool made of it."""
    tool = raw.invocation.tool
    if said is None:  # the handler may have said it itself
        said = raw.value if type(raw.value) is NormalizedOutput else _AS_IS
    state = _facts(said.state) if said.state else {}
    if state and (problem := _find_state_problem(state, tool)):
        return _misshapen(raw, problem)
    binary, attachments = b"", said.attachments
    if said.text is not None:
        text, form = said.text, said.format
    elif type(raw.value) is str:
        text, form = raw.value, said.format
        # A text that was made of bytes has a character for each.
        if "\0" in text and is_binary(text.encode("latin-1", "ignore")):
            binary = text.encode(errors="surrogatepass")
    elif type(raw.value) in _HOLDERS and (attached := _split_attachments(raw.value)):
        (text, attachments), form = attached, "text"
    else:
        text, form = as_text(raw.value)
        binary = _find_binary(raw.value) if isinstance(raw.value, _BYTES) else b""
    return NormalizedResult(
        ok=said.ok,
        code=said.code,
        title=tool.spec.name,
        summary=said.summary,
        model_text=text,
        binary=binary,
        user_text=said.user_text,
        format=form,
        side_effects=_effects(raw, said) if tool.risk or said.side_effects else raw.side_effects,
        exit_code=said.exit_code,
        duration_ms=raw.duration_ms,
        retryable=said.retryable,
        facts=_facts(said.facts) if said.facts else {},
        size=said.size,
        next_hint=said.next_hint,
        next_tool=said.next_tool,
        kind=said.kind,
        state=state,
        attachments=attachments,
    )


def _find_binary(value: bytes | bytearray) -> bytes:
    return content if is_binary(content := bytes(value)) else b""


def _find_state_problem(state: JsonObject, tool: ToolDefinition) -> str:
    if not tool.hands_over and any(name.startswith(RESERVED_STATE_PREFIX) for name in state):
        return f"it may not remember a name that begins with {RESERVED_STATE_PREFIX}"
    return f"it may remember at most {_MAX_STATE_BYTES:,} bytes" if len(encode(state)) > _MAX_STATE_BYTES else ""


def _split_attachments(value: Any) -> tuple[str, tuple[Attachment, ...]] | None:
    """Return the text and the attachments of a result; None when it has no attachments."""
    items: tuple[Any, ...] = (value,) if isinstance(value, Attachment) else tuple(value)
    attachments = tuple(item for item in items if isinstance(item, Attachment))
    texts = (as_text(item)[0] for item in items if not isinstance(item, Attachment))
    return ("\n".join(texts), attachments) if attachments else None


def _facts(said: JsonObject) -> JsonObject:
    facts: JsonObject = json_safe(said)
    return facts if type(facts) is dict else {"facts": facts}


def _effects(raw: RawResult, said: NormalizedOutput) -> SideEffects:
    if said.side_effects is not None:
        return raw.side_effects + said.side_effects
    if raw.side_effects or not raw.invocation.tool.risk & _EFFECTFUL:
        return raw.side_effects
    return UNKNOWN_SIDE_EFFECTS


def _misshapen(raw: RawResult, why: str) -> Failure:
    effects: SideEffects = (
        NO_SIDE_EFFECTS if raw.invocation.tool.read_only else raw.side_effects or UNKNOWN_SIDE_EFFECTS
    )
    message = f"{raw.invocation.tool.name} ran, but its result could not be put in shape ({why})."
    return Failure.from_code("normalize_failed", message, side_effects=effects)
