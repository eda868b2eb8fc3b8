"""A recording of a run: what people and the model said, and the outcome of every call.

It is plain data, independent of storage: no store, no chain, no questions with their environment. So it can be written
to a file, and two of them can be compared (`differences.py`): the original, and what today's code makes of the same
responses.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec

from ..domain.call import Answer
from ..domain.decision import Decision
from ..domain.errors import ConfigurationError
from ..domain.event import CallProposed
from ..domain.json import MAX_FILE_DEPTH, InvalidJsonError, encode, encode_sorted, is_too_deep, parse
from ..domain.messages import AssistantMessage, Message, MessagePart, ProposedCall, ToolMessage, Usage, UserMessage
from ..domain.observation import Observation
from ..domain.outcome import ERROR_CODES, SideEffects
from ..domain.tool import PermissionMode, ToolSpec

RECORDING_FORMAT = "interlock/recording/v1"
MAX_RECORDING_BYTES = 64 << 20

#: How a run ended; `open`: it did not.
RunEnd: TypeAlias = Literal["completed", "degraded", "failed", "cancelled", "open"]


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to the model, as far as it is in the log."""

    seq: int
    agent: str = ""
    menu_digest: str = ""
    message_count: int = 0
    tool_choice: str = "auto"
    #: The artifact with the instructions in force, which is named after its content.
    instructions: str = ""


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a request to the model."""

    seq: int
    request: ReplayRequest
    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    finish: str = "stop"
    usage: Usage = Usage()
    duration_ms: float = 0.0
    #: There was no answer, for this reason.
    failed: str = ""
    retryable: bool = False
    code: str = ""
    #: What people said after it and before the next request.
    said: tuple[str, ...] = ()
    #: How its calls were evaluated: the permission mode, and whether a person was available.
    mode: PermissionMode = PermissionMode.DEFAULT
    interactive: bool = False


class ReplayCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded call."""

    seq: int
    call_id: str
    tool: str
    #: The agent whose turn it was.
    agent: str = ""
    #: As JSON text, or what the model wrote instead.
    arguments: str = ""
    #: Why the arguments are not what the model wrote; then nothing that follows from them can be compared.
    lost: str = ""
    mode: PermissionMode = PermissionMode.DEFAULT
    interactive: bool = False
    #: None: it did not come so far.
    valid: bool | None = None
    errors: tuple[str, ...] = ()
    validated_seq: int = -1
    #: The last decision. Where an earlier approval covered the call, the policy had asked.
    decision: Decision | None = None
    judged_seq: int = -1
    #: The person's last answer about it.
    answer: Answer | None = None
    started: bool = False
    duration_ms: float = 0.0
    observation: Observation | None = None
    observed_seq: int = -1
    #: Where the runtime cut the output: all of it.
    output: str | None = None
    #: A digest of its tool message.
    told: str = ""

    @property
    def ran(self) -> bool:
        """True when there is an outcome of an execution."""
        return self.started and self.observation is not None


class ReplayContextStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded change of what the model saw, before it gave the answer with this number."""

    answer: int
    #: The calls whose outputs were left out.
    trimmed: tuple[str, ...] = ()
    #: How many messages a summary replaced.
    compacted: int = 0


class Objection(msgspec.Struct, frozen=True):
    """A problem of a final answer."""

    seq: int
    kind: Literal["answer", "verification"]
    message: str


class Recording(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded run."""

    #: Always written, so that a reader knows what it reads.
    form: str = ""
    run_id: str
    agent: str = ""
    workspace: str = ""
    requester: str = ""
    #: The last event that was copied from another run; -1: none.
    forked_at: int = -1
    #: What people said before the model was asked first.
    opening: tuple[str, ...] = ()
    #: The attachments of each message of people, in their order.
    attachments: tuple[tuple[MessagePart, ...], ...] = ()
    answers: tuple[ReplayAnswer, ...] = ()
    #: In the order in which they were proposed.
    calls: dict[str, ReplayCall] = {}
    context: tuple[ReplayContextStep, ...] = ()
    objections: tuple[Objection, ...] = ()
    end: RunEnd = "open"
    end_seq: int = -1
    message: str = ""
    #: What the model said last, when it asked for nothing more.
    text: str = ""
    verification: str = "none"
    verification_message: str = ""
    #: One line per message of the conversation: who, and a digest of what.
    conversation: tuple[str, ...] = ()
    #: The tools of every catalog, by its digest: names and versions.
    menus: dict[str, dict[str, str]] = {}
    #: The last tool catalog offered to the model.
    tools: tuple[ToolSpec, ...] = ()
    #: Whether the user replied to a final answer.
    chat: bool = False

    @property
    def decisions(self) -> dict[str, str]:
        """The verdict on every evaluated call, by its id."""
        return {call.call_id: str(call.decision.verdict) for call in self.calls.values() if call.decision}

    @property
    def outcomes(self) -> dict[str, str]:
        """`ok`, or the failure code, by call id."""
        return {call.call_id: call.observation.code for call in self.calls.values() if call.observation}


def was_stopped_by_runtime(observation: Observation) -> bool:
    """Return True if the call ended without a result: an exception, a timeout, a cancellation. A tool that reports
    failure has a result.
    """
    failure = observation.failure
    if failure is None or failure.code not in ERROR_CODES:
        return False
    return failure.code != "tool_failed" or "error_type" in failure.details


def read_side_effects(call: ReplayCall) -> SideEffects:
    """Return the recorded side effects of a call."""
    return call.observation.side_effects if call.observation is not None else ()


def to_json(recording: Recording) -> bytes:
    """Return the recording as readable JSON."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"


def from_json(text: str | bytes) -> Recording:
    """Parse a recording. Raise `ConfigurationError` if it is not valid."""
    if len(text) > MAX_RECORDING_BYTES:
        raise ConfigurationError(f"The recording is larger than {MAX_RECORDING_BYTES} bytes.")
    try:
        if is_too_deep(text.encode() if isinstance(text, str) else text):
            raise ConfigurationError(
                f"The recording is nested deeper than {MAX_FILE_DEPTH} levels (nested_too_deep): Interlock writes no "
                "such recording, so nothing of it was read."
            )
        recording = _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigurationError(f"This is not a recording of a run: {error}.") from None
    if recording.form != RECORDING_FORMAT:
        raise ConfigurationError(
            f"The recording must say that its form is {RECORDING_FORMAT!r}, not {recording.form[:80]!r}."
        )
    return recording


def describe_tool_changes(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the differences between two tool catalogs as text; empty when there are none."""
    gone = [f"{name} is gone" for name in was if name not in now]
    new = [f"{name} is new" for name in now if name not in was]
    other = [f"{name} is declared differently" for name in was if name in now and was[name] != now[name]]
    return ", ".join([*gone, *new, *other])


_decode = msgspec.json.Decoder(Recording).decode


#: How half of a surrogate pair is written into a log; a model may also have written just that.
_surrogate = re.compile(r"\\ud[89a-f][0-9a-f]{2}").search


def read_arguments(fact: CallProposed, known: ReplayCall | None, kept: bytes | None) -> tuple[str, str]:
    """Return the arguments as JSON text, and why they differ from the model's. `kept`: the content of the artifact,
    where there is one.
    """
    if not fact.raw_bytes and known is not None:
        return _read_repeated(fact, known)
    raw: Any = fact.raw_input
    if fact.raw_artifact_id:
        if kept is None:
            return "{}", "its arguments are too large for the log"
        raw = kept.decode(errors="replace")
    text: str = raw if isinstance(raw, str) else encode(raw).decode()
    if fact.digest in ("", _digest(fact.tool, text)):
        return text, ""
    if fact.digest != _digest_raw_text(fact.tool, text):
        return text, "its arguments were redacted or cut"
    return text, "its arguments may hold half of a surrogate pair, which no log has" if _surrogate(text) else ""


def _read_repeated(fact: CallProposed, known: ReplayCall) -> tuple[str, str]:
    """Read the same call again; or its id for another one, whose arguments were not kept: any others represent them."""
    digests = (_digest(known.tool, known.arguments), _digest_raw_text(known.tool, known.arguments), "")
    same = known.lost or fact.digest in digests
    return (known.arguments if same else encode({"other": fact.digest}).decode()), ""


def _digest(tool: str, arguments: str) -> str:
    """Return the digest of an accepted call."""
    try:
        return sha256(encode_sorted((tool, parse(arguments)))).hexdigest()
    except (InvalidJsonError, UnicodeError):
        return ""


def _digest_raw_text(tool: str, text: str) -> str:
    """Return the digest of a rejected call, computed over its raw text."""
    return sha256(f"{tool}\n{text}".encode(errors="backslashreplace")).hexdigest()


#: How the ids of calls begin that came without a usable one.
GENERATED_ID_PREFIX = "invalid_"
_DIGEST_CHARS = 16


def short_digest(text: str) -> str:
    """Return a short digest of a text."""
    return sha256(text.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]


def digest_message(message: Message) -> str:
    """Return a digest of a message that does not depend on generated ids."""
    match message:
        case UserMessage():
            return f"user {short_digest(message.text)}"
        case ToolMessage():
            made_up = message.call_id.startswith(GENERATED_ID_PREFIX)
            return f"tool {GENERATED_ID_PREFIX}" if made_up else f"tool {message.call_id} {short_digest(message.text)}"
        case AssistantMessage():
            called = "".join(f" {_stable_id(call.call_id)}:{call.tool}" for call in message.calls)
            return f"assistant {short_digest(message.text)}{called}"


def _stable_id(call_id: str) -> str:
    """Return an id that two recordings share: one that was made up for a call depends on words that the log does not
    have.
    """
    return GENERATED_ID_PREFIX if call_id.startswith(GENERATED_ID_PREFIX) else call_id
