"""Assembles streamed text and calls: whole characters, within limits.

A server may cut between the two halves of a character beyond U+FFFF, and a model may write half of one. Halves that
meet are joined; a half that stays alone is written as an escape, because it could not be stored.

Adapters limit what a server sends. A custom provider may not, and its stream may never end: `StreamAccumulator` does.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any, TypeVar

import msgspec

from ..domain.errors import ModelError
from ..domain.ids import is_valid_name
from ..domain.json import encode, escape_surrogates
from ..domain.messages import AssistantMessage, Message, ProposedCall, Usage
from .interface import (
    MAX_ANSWER_CHARS,
    FinishReason,
    ModelEvent,
    StreamFinished,
    StreamRestarted,
    TextDelta,
    ToolCallDelta,
)

#: As many as one batch may have. Adapters allow fewer, since a server sends them all at once.
MAX_RESPONSE_CALLS = 4096


class StreamAccumulator(msgspec.Struct):
    """Text and calls of one response. `add` raises `ModelError` when it exceeds the limits."""

    calls: list[ProposedCall] = []
    _pieces: list[str] = []
    _chars: int = 0
    _call_count: int = 0

    @property
    def text(self) -> str:
        """Text received so far."""
        return "".join(self._pieces) if self._pieces else ""

    def add(self, event: ModelEvent) -> None:
        """Add an event of the stream. A restart discards what came before."""
        match event:
            case TextDelta():
                self._pieces.append(event.text)
                self._chars += len(event.text)
            case ToolCallDelta():
                self.calls.append(event.call)
                self._call_count += 1
            case StreamRestarted():
                self._pieces.clear()
                self.calls.clear()
                self._chars = self._call_count = 0
            case _:
                pass
        if self._chars > MAX_ANSWER_CHARS:
            raise ModelError(
                f"The model said more than {MAX_ANSWER_CHARS} characters in one answer. Nothing was executed."
            )
        if self._call_count > MAX_RESPONSE_CALLS:
            raise ModelError(
                f"The model wrote more than {MAX_RESPONSE_CALLS} calls in one answer. Nothing was executed."
            )


#: A character is a byte or more, so whatever passes here is within what an answer may be.
MAX_TEXT_BYTES = MAX_ANSWER_CHARS


def join_surrogates(text: str) -> str:
    """Return the text with halves of characters joined, or escaped where the other half is missing."""
    if text.isascii():
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return escape_surrogates(joined)


class TextAssembler:
    """The text of a model, piece by piece."""

    def __init__(self) -> None:
        self._size_bytes = 0
        self._pending_surrogate = ""

    def add_delta(self, text: str) -> str:
        """Return what can be shown now: perhaps nothing yet."""
        text = self._pending_surrogate + text
        self._pending_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return self._check_size(text.removesuffix(self._pending_surrogate))

    def finish(self) -> str:
        """Return the text still pending at the end of the stream."""
        half, self._pending_surrogate = self._pending_surrogate, ""
        return self._check_size(half)

    def _check_size(self, text: str) -> str:
        shown = join_surrogates(text)
        self._size_bytes += len(shown.encode())
        if self._size_bytes > MAX_TEXT_BYTES:
            raise ModelError(f"The model said more than {MAX_TEXT_BYTES} bytes in one answer. Nothing was executed.")
        return shown


MAX_CALLS = 256
MAX_ARGUMENTS_BYTES = 256 << 10
MAX_NAME_CHARS = 4096
#: What a call has for arguments when it was cut before the first of them: not JSON, so it is refused.
TRUNCATED_ARGUMENTS = "{"


class _PartialCall:
    __slots__ = ("arguments", "call_id", "size_bytes", "tool")

    def __init__(self) -> None:
        self.call_id = ""
        self.tool = ""
        self.arguments: list[str] = []
        self.size_bytes = 0


class CallAssembler:
    """The calls of one response, in the order in which the model began them."""

    def __init__(self, earlier: Iterable[Message] = ()) -> None:
        self._earlier = {
            call.call_id for message in earlier if isinstance(message, AssistantMessage) for call in message.calls
        }
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_delta(self, index: int | None, call_id: str = "", tool: str = "", arguments: str = "") -> None:
        """Add a piece of a tool call. Find the call by index or id."""
        call = self._find(index, call_id)
        call.call_id = call.call_id or call_id
        # Some servers repeat the name in every piece, others spread it over several.
        if tool and tool != call.tool:
            call.tool += tool
        if arguments:
            call.arguments.append(arguments)
            call.size_bytes += len(arguments.encode(errors="surrogatepass"))
        self._check_size(call)

    def _find(self, index: int | None, call_id: str) -> _PartialCall:
        if index is not None:
            found = self._by_index.get(index)
        elif call_id:
            found = next((call for call in self._calls if call.call_id == call_id), None)
        else:
            found = self._calls[-1] if self._calls else None
        # Some servers give every call the index 0: then only the id marks a new one.
        if found is None or (call_id and found.call_id and found.call_id != call_id):
            found = self._begin(index)
        return found

    def _begin(self, index: int | None) -> _PartialCall:
        if len(self._calls) == MAX_CALLS:
            raise ModelError(f"The model wrote more than {MAX_CALLS} calls in one answer. Nothing was executed.")
        begun = _PartialCall()
        self._calls.append(begun)
        if index is not None:
            self._by_index[index] = begun
        return begun

    def _check_size(self, call: _PartialCall) -> None:
        if call.size_bytes > MAX_ARGUMENTS_BYTES:
            raise ModelError(
                f"The model wrote more than {MAX_ARGUMENTS_BYTES} bytes of arguments for one call. "
                "Nothing was executed."
            )
        if len(call.tool) > MAX_NAME_CHARS or len(call.call_id) > MAX_NAME_CHARS:
            raise ModelError(f"The model wrote a name of more than {MAX_NAME_CHARS} characters. Nothing was executed.")

    def finish(self, *, cut: bool = False) -> tuple[ProposedCall, ...]:
        """Return all of them, at the end of the answer. `cut`: it ended because it became too long."""
        ids = self._assign_ids()
        empty = TRUNCATED_ARGUMENTS if cut else "{}"
        return tuple(
            ProposedCall(
                call_id=call_id,
                tool=join_surrogates(call.tool),
                arguments=join_surrogates("".join(call.arguments)) or empty,
            )
            for call, call_id in zip(self._calls, ids, strict=True)
        )

    def _assign_ids(self) -> list[str]:
        """Assign ids: the original ones if usable, otherwise the same new one for the same original."""
        taken = self._earlier | {call.call_id for call in self._calls}
        renamed: dict[str, str] = {}
        ids: list[str] = []
        for call in self._calls:
            if is_valid_name(call.call_id) and call.call_id not in self._earlier:
                ids.append(call.call_id)
                continue
            fresh = renamed.get(call.call_id) or next(name for n in count(1) if (name := f"call_{n}") not in taken)
            taken.add(fresh)
            if call.call_id:
                renamed[call.call_id] = fresh
            ids.append(fresh)
        return ids


_T = TypeVar("_T")


def convert_event(kind: type[_T], event: object) -> _T:
    """Convert an object of an SDK. Raise `msgspec.ValidationError` when it has another shape."""
    try:
        return msgspec.convert(event, kind, from_attributes=True)
    except UnicodeEncodeError as error:  # half a character where something else than text belongs
        raise msgspec.ValidationError(str(error)) from None


def encode_arguments(arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as text, from a server that sent an object."""
    return encode(escape_surrogates(arguments)).decode()


def build_final_events(
    text: TextAssembler, calls: CallAssembler, reason: FinishReason, usage: Usage, private: str = ""
) -> list[ModelEvent]:
    """Return the rest of the text, the calls, the end. Calls come together: only now it is known whether they were
    cut.
    """
    # Some servers say `stop` whatever the model did.
    finish_reason: FinishReason = "tool_calls" if calls and reason == "stop" else reason
    rest = text.finish()
    return [
        *([TextDelta(rest)] if rest else []),
        *(ToolCallDelta(call) for call in calls.finish(cut=finish_reason == "length")),
        StreamFinished(reason=finish_reason, usage=usage, private=private),
    ]
