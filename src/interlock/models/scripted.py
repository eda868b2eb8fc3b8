"""What a request is known by, so that a recorded answer can be told to belong to it."""

from collections.abc import AsyncGenerator, Callable, Iterable
from hashlib import sha256
from typing import TypeAlias, cast

import msgspec

from ..domain.errors import ConfigurationError, ModelError
from ..domain.json import InvalidJsonError, JsonObject, encode, encode_sorted, escape_surrogates, parse
from ..domain.messages import AssistantMessage, ProposedCall, Usage
from .interface import FinishReason, ModelEvent, ModelRequest, StreamFinished, TextDelta, ToolCallDelta
from .response_assembly import CallAssembler


def request_digest(request: ModelRequest) -> str:
    """Over everything that a model is asked."""
    try:
        encoded = encode_sorted(request)
    except UnicodeEncodeError:
        encoded = repr(request).encode(errors="backslashreplace")
    return "sha256:" + sha256(encoded).hexdigest()


class ScriptedFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `ModelError` to raise, after what the turn says."""

    message: str
    retryable: bool = False
    retry_after_seconds: float | None = None


class ScriptedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer. A call without an id is given one."""

    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    #: None: what such an answer ends with.
    reason: FinishReason | None = None
    usage: Usage = Usage()
    #: What the provider wanted back with this answer when it was recorded.
    private: str = ""
    fault: ScriptedFault | None = None
    #: The digest of the request that it answered when it was recorded.
    request: str = ""


TurnFactory: TypeAlias = Callable[[ModelRequest], ScriptedTurn]


def tool_call(tool: str, arguments: JsonObject | str | None = None, call_id: str = "") -> ProposedCall:
    """A call for a script: arguments as an object, or as the text that a model might write."""
    written = arguments if isinstance(arguments, str) else encode(arguments or {}).decode()
    return ProposedCall(call_id=call_id, tool=tool, arguments=written)


class ScriptedModel:
    """Answers with the turns in their order; a turn may be a function of the request.

    `by_position`: the turn is chosen by the number of answers that the conversation already has, not by the number of
    requests so far. Then a new process goes on where the last one stopped, and asking again gives the same answer.

    `strict`: a turn that was recorded answers only the request that it was recorded for.
    """

    name = "scripted"

    def __init__(
        self, turns: Iterable[ScriptedTurn | TurnFactory], *, by_position: bool = False, strict: bool = False
    ) -> None:
        self._turns = tuple(turns)
        self._by_position = by_position
        self._strict = strict
        self._asked = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        turn = self._next(request)
        if turn.text:
            yield TextDelta(turn.text)
        for call in _with_ids(turn.calls, request):
            yield ToolCallDelta(call)
        if turn.fault:
            fault = turn.fault
            raise ModelError(fault.message, retryable=fault.retryable, retry_after_seconds=fault.retry_after_seconds)
        reason = turn.reason or ("tool_calls" if turn.calls else "stop")
        yield StreamFinished(reason=reason, usage=turn.usage, private=turn.private)

    def _next(self, request: ModelRequest) -> ScriptedTurn:
        answers = sum(isinstance(message, AssistantMessage) for message in request.messages)
        position = answers if self._by_position else self._asked
        self._asked += 1
        if position >= len(self._turns):
            raise ModelError(
                f"The script has {len(self._turns)} turns and was asked for turn {position + 1}. "
                "Nothing was executed; write the missing turn."
            )
        found = self._turns[position]
        turn = found if isinstance(found, ScriptedTurn) else found(request)
        if self._strict and turn.request and turn.request != request_digest(request):
            raise ModelError(
                f"Turn {position + 1} of the script answers another request than this one: the instructions, the "
                "messages or the tools changed since it was recorded. Nothing was executed; record it anew."
            )
        return turn

    async def close(self) -> None:
        """There is nothing to close."""


def _with_ids(calls: tuple[ProposedCall, ...], request: ModelRequest) -> tuple[ProposedCall, ...]:
    """As they are, unless one has no id."""
    if all(call.call_id for call in calls):
        return calls
    written = CallAssembler(request.messages)
    for index, call in enumerate(calls):
        written.add_delta(index, call.call_id, call.tool, call.arguments)
    named = written.finish()
    return tuple(
        msgspec.structs.replace(call, call_id=call.call_id or new.call_id)
        for call, new in zip(calls, named, strict=True)
    )


SCRIPT_FORMAT = "interlock/script/v1"
MAX_SCRIPT_BYTES = 64 << 20


class _Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    form: str
    turns: tuple[ScriptedTurn, ...]


def to_script(turns: Iterable[ScriptedTurn]) -> bytes:
    """Readable JSON. What a model said stands in it as it was said: take secrets out before you share it."""
    plain = escape_surrogates(msgspec.to_builtins(_Script(SCRIPT_FORMAT, tuple(turns))))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def from_script(text: str | bytes) -> tuple[ScriptedTurn, ...]:
    if len(text) > MAX_SCRIPT_BYTES:
        raise ConfigurationError(f"The script is larger than {MAX_SCRIPT_BYTES} bytes.")
    try:
        document = parse(text)
    except InvalidJsonError as error:
        raise ConfigurationError(f"The script is not JSON: {error}.") from None
    form = cast(JsonObject, document).get("form") if isinstance(document, dict) else None
    if form != SCRIPT_FORMAT:
        raise ConfigurationError(f"The script must say that its form is {SCRIPT_FORMAT!r}, not {form!r}.")
    try:
        return msgspec.convert(document, _Script).turns
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The script is not as {SCRIPT_FORMAT!r} has it: {error}.") from None
