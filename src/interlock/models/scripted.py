"""A model that answers from a script: for tests, examples and demos, without a provider.

`ModelRecorder` records the responses of a model, so that a live run becomes a script. It keeps answers and digests of
requests, never requests, headers or keys. What a model said is kept as it was said: secrets in it are for the caller
to take out.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, TypeAlias, cast

import msgspec

from ..domain.errors import ConfigurationError, ModelError
from ..domain.json import InvalidJsonError, Json, JsonObject, encode, encode_sorted, escape_surrogates, parse
from ..domain.messages import AssistantMessage, ProposedCall, Usage
from .interface import FinishReason, ModelEvent, ModelProvider, ModelRequest, StreamFinished, TextDelta, ToolCallDelta
from .response_assembly import CallAssembler, StreamAccumulator
from .usage import estimate_cost


def request_digest(request: ModelRequest) -> str:
    """Return the digest of everything that a model is asked."""
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
    #: `context_length_exceeded` when the request was too long.
    code: str = ""

    def to_error(self) -> ModelError:
        """Return the exception."""
        after = self.retry_after_seconds
        return ModelError(self.message, retryable=self.retryable, retry_after_seconds=after, code=self.code)


class ScriptedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One response. A call without an id is given one."""

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


#: What a model says in one turn: text, a tool call, several of them, or a `ScriptedTurn` with all details.
Turn: TypeAlias = str | ProposedCall | Sequence[ProposedCall] | ScriptedTurn
TurnFactory: TypeAlias = Callable[[ModelRequest], Turn]


def tool_call(name: str, /, *, call_id: str = "", raw: str | None = None, **arguments: Json) -> ProposedCall:
    """Return a tool call for a script: `tool_call("read_file", path="a.txt")`.

    Args:
        name: The tool.
        call_id: The id of the call. Default: one is made up.
        raw: The arguments as the text that a model writes, instead of `arguments`: for malformed JSON, or for
            arguments whose names a keyword cannot have.
        arguments: The arguments, as JSON values.
    """
    if raw is not None and arguments:
        raise ConfigurationError(f"tool_call({name!r}) has both `raw` and arguments. Give one of them.")
    written = encode(cast(Json, arguments)).decode() if raw is None else raw
    return ProposedCall(call_id=call_id, tool=name, arguments=written)


class ScriptedModel:
    """Answer with scripted turns, in their order.

        ScriptedModel([tool_call("search", query="tea"), "Tea is 3.50."])

    A turn is text, a `tool_call(...)`, a list of them, a `ScriptedTurn`, or a function of the `ModelRequest` that
    returns one of these.

    Args:
        turns: The turns.
        by_position: Choose the turn by the number of answers that the conversation has, not by the number of requests
            so far. Then a new process continues where the last one stopped, and the same request gets the same answer.
        strict: A turn that was recorded answers only the request that it was recorded for.
    """

    name = "scripted"

    def __init__(self, turns: Iterable[Turn | TurnFactory], *, by_position: bool = False, strict: bool = False) -> None:
        self._turns = tuple(
            turn if callable(turn) else _to_turn(turn, number) for number, turn in enumerate(turns, start=1)
        )
        self._by_position = by_position
        self._strict = strict
        self._asked = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the next turn of the script."""
        turn = self._next(request)
        if turn.text:
            yield TextDelta(turn.text)
        for call in _with_ids(turn.calls, request):
            yield ToolCallDelta(call)
        if turn.fault:
            raise turn.fault.to_error()
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
        turn = found if isinstance(found, ScriptedTurn) else _to_turn(found(request), position + 1)
        if self._strict and turn.request and turn.request != request_digest(request):
            raise ModelError(
                f"Turn {position + 1} of the script answers another request than this one: the instructions, the "
                "messages or the tools changed since it was recorded. Nothing was executed; record it again."
            )
        return turn

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _to_turn(turn: Turn, number: int) -> ScriptedTurn:
    match turn:
        case ScriptedTurn():
            return turn
        case str():
            return ScriptedTurn(text=turn)
        case ProposedCall():
            return ScriptedTurn(calls=(turn,))
        case _:
            calls = tuple(turn) if isinstance(turn, list | tuple) else ()
            if calls and all(type(call) is ProposedCall for call in calls):
                return ScriptedTurn(calls=calls)
            raise ConfigurationError(
                f"Turn {number} of the script is of type {type(turn).__name__}. Give text, tool_call(...), a list of "
                "tool calls, or ScriptedTurn(...)."
            )


def _with_ids(calls: tuple[ProposedCall, ...], request: ModelRequest) -> tuple[ProposedCall, ...]:
    """Return the calls, each with an id."""
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
    """Return the turns as readable JSON. It has the model's text unchanged: remove secrets before you share it."""
    plain = escape_surrogates(msgspec.to_builtins(_Script(SCRIPT_FORMAT, tuple(turns))))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def from_script(text: str | bytes) -> tuple[ScriptedTurn, ...]:
    """Parse a script. Raise `ConfigurationError` if it is not valid."""
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


class ModelRecorder:
    """A provider that passes everything through. `turns` has the responses so far, in the order of their requests.

    An answer that was left before its end is not in it.
    """

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self._asked = 0
        self._turns: dict[int, ScriptedTurn] = {}

    @property
    def name(self) -> str:
        """Name of the wrapped provider."""
        return self._provider.name

    @property
    def turns(self) -> tuple[ScriptedTurn, ...]:
        """Recorded turns in the order in which they were requested."""
        return tuple(self._turns[position] for position in sorted(self._turns))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream from the wrapped provider and record the turn."""
        position, self._asked = self._asked, self._asked + 1
        digest, accumulator = request_digest(request), StreamAccumulator()

        def record(**ended: Any) -> None:
            text, calls = accumulator.text, tuple(accumulator.calls)
            self._turns[position] = ScriptedTurn(text=text, calls=calls, request=digest, **ended)

        try:
            async with aclosing(self._provider.stream(request)) as events:
                async for event in events:
                    accumulator.add(event)
                    if isinstance(event, StreamFinished):
                        record(reason=event.reason, usage=event.usage, private=event.private)
                    yield event
        except ModelError as error:
            after = error.retry_after_seconds
            fault = ScriptedFault(
                message=str(error), retryable=error.retryable, retry_after_seconds=after, code=error.code
            )
            record(fault=fault)
            raise

    def estimate_cost(self, usage: Usage, model: str) -> float | None:
        """Return the cost of a request by the prices of the wrapped provider."""
        return estimate_cost(self._provider, usage, model)

    async def close(self) -> None:
        """Close the wrapped provider."""
        await self._provider.close()
