"""Stage 1: take the intent in. Is it a sane request, and was it seen before?

Nothing is trusted here: the id, the name and the arguments come from a model. Arguments are JSON text as the model
wrote it, or an object that a client parsed; both must be the same strict JSON (`domain/json.py`).
"""

from hashlib import sha256
from typing import Any

import msgspec

from ..domain.call import AcceptedCall, ToolIntent
from ..domain.event import CallProposed
from ..domain.ids import MAX_NAME_CHARS, is_ascii_name, is_valid_name
from ..domain.json import InvalidJsonError, JsonObject, check_value, encode, encode_sorted, parse
from ..domain.outcome import Failure
from ..domain.redaction import redact_json, redact_json_text, redact_leaves
from ..domain.tool import ToolDefinition
from ..redaction.interface import MAX_PLAIN_NAMES, Redactor
from .artifacts import use_store
from .parts import Limits, Parts

_MAX_SHOWN_CHARS = 2_000


class Received(msgspec.Struct, frozen=True, gc=False):
    """An intent with its digest, whether it is accepted or not: what the log and the duplicate check need."""

    intent: ToolIntent
    digest: str
    #: The arguments as they came.
    raw: bytes
    size_bytes: int
    outcome: AcceptedCall | Failure


def accept(intent: ToolIntent, limits: Limits, redactor: Redactor) -> Received:
    """Parse a proposed call. Refuse names, ids and arguments that cannot be used."""
    try:
        plain = is_ascii_name(intent.call_id) and intent.tool_name in redactor.plain_names
    except TypeError:
        plain = None
    if not plain and not _is_usable(intent, redactor):
        return _refuse_unnamed(intent, redactor)
    if redactor.declares and _is_secret(intent, redactor):
        return _refuse_unnamed(intent, redactor)
    arguments: Any = intent.arguments
    try:  # no text at all is what some models send when there are no arguments
        raw = (arguments.encode() or b"{}") if type(arguments) is str else _raw_bytes(arguments)
        size_bytes = len(raw)
        if size_bytes > limits.max_argument_bytes:
            message = f"The arguments are {size_bytes} bytes; the limit is {limits.max_argument_bytes}."
            return _refused(intent, raw, "arguments_too_large", message)
        parsed: Any = parse(raw) if type(arguments) is str else arguments
    except (InvalidJsonError, UnicodeEncodeError, TypeError) as error:
        return _refused(
            intent, _shown(arguments, redactor), "arguments_malformed", f"The arguments are not JSON: {error}."
        )
    accepted: JsonObject = parsed
    if type(parsed) is not dict:
        message = f"The arguments must be a JSON object, not {type(parsed).__name__}."
        return _refused(intent, raw, "arguments_malformed", message)
    digest = sha256(encode_sorted((intent.tool_name, accepted))).hexdigest()
    return Received(intent, digest, raw, size_bytes, AcceptedCall(intent, accepted, raw))


def intent_event(
    received: Received, tool: ToolDefinition | None, parts: Parts, artifact_id: str = "", *, is_known: bool
) -> CallProposed:
    """Build the event of a proposed call, redacted.

    `artifact_id`: where large arguments were kept. `is_known`: the run has a call of this id.
    """
    intent, redact = received.intent, parts.redactor.redact
    raw_input: object = None
    match received.outcome:
        case AcceptedCall() as accepted:
            if not artifact_id:
                text: Any = intent.arguments or "{}"
                if type(text) is not str:
                    text = received.raw.decode()
                if "\\" in text:
                    redacted = redact_json(accepted.arguments, redact, text)
                elif (redacted := redact(text)) == text:  # the same without another call: this is done for every call
                    redacted = None
                raw_input = accepted.arguments if redacted is None else redacted
        case Failure():
            raw_input = redact_json_text(received.raw.decode(), redact)[: parts.limits.max_event_input_bytes]
    return CallProposed(
        call_id=intent.call_id,
        tool=intent.tool_name,
        raw_input=raw_input,
        raw_artifact_id=artifact_id,
        raw_bytes=received.size_bytes,
        digest=received.digest,
        tool_version=tool.version if tool is not None else "",
        reason=parts.redactor.redact(intent.reason) if type(intent.reason) is str and intent.reason else "",
        duplicate=is_known,
    )


async def keep_large_arguments(received: Received, parts: Parts) -> str:
    """Store arguments that are too large for an event, redacted, in a thread. Return the artifact; empty for others."""
    accepted = received.outcome
    if received.size_bytes <= parts.limits.max_event_input_bytes or isinstance(accepted, Failure):
        return ""
    redacted = redact_json(accepted.arguments, parts.redactor.redact, received.raw.decode())
    content = received.raw if redacted is None else redacted.encode()
    return await use_store(parts.artifacts, parts.artifacts.keep, content)


def _is_usable(intent: ToolIntent, redactor: Redactor) -> bool:
    """Return True if the call's id and tool name can be used and recorded."""
    if not (is_valid_name(intent.call_id) and is_valid_name(intent.tool_name)):
        return False
    if redactor.redact(intent.tool_name) != intent.tool_name:
        return False
    if len(redactor.plain_names) < MAX_PLAIN_NAMES:
        redactor.plain_names.add(intent.tool_name)
    return True


def _is_secret(intent: ToolIntent, redactor: Redactor) -> bool:
    """Return True if the name holds a declared secret. It could not be recorded, so it names nothing."""
    names = f"{intent.call_id}\n{intent.tool_name}"
    return redactor.redact_declared(names) != names


def _refuse_unnamed(intent: ToolIntent, redactor: Redactor) -> Received:
    """Refuse an intent without a usable id or name; an id is generated for the record."""
    raw = _shown([intent.call_id, intent.tool_name, intent.arguments], redactor)
    named = ToolIntent(call_id="invalid_" + sha256(raw).hexdigest()[:16], tool_name="", arguments="")
    message = f"A call needs an id and a tool name of 1 to {MAX_NAME_CHARS} printable characters."
    return _refused(named, raw, "call_id_invalid", message)


def _shown(value: object, redactor: Redactor) -> bytes:
    """Return the beginning of something that is not JSON. Redacted before it is cut: half a secret looks like none."""
    redact = redactor.redact
    try:
        text = redact_json_text(value, redact) if isinstance(value, str) else repr(redact_leaves(value, redact))
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return text[:_MAX_SHOWN_CHARS].encode(errors="backslashreplace")


def _raw_bytes(arguments: Any) -> bytes:
    """Return arguments parsed by a client as JSON text again."""
    check_value(arguments)
    return encode(arguments)


def _refused(intent: ToolIntent, raw: bytes, code: str, message: str) -> Received:
    digest = sha256(intent.tool_name.encode(errors="backslashreplace") + b"\n" + raw).hexdigest()
    return Received(intent, digest, raw, len(raw), Failure.from_code(code, message + " Nothing was executed."))
