"""What answers have in common, whoever gave them: how they are read, and how they end."""

from typing import Any, TypeVar

import msgspec

from ..domain.json import encode, without_surrogates
from ..domain.messages import Usage
from .calls import WrittenCalls
from .interface import CallWritten, Finished, FinishReason, ModelEvent, TextPiece
from .text import SpokenText

_T = TypeVar("_T")


def read_as(kind: type[_T], said: object) -> _T:
    """An SDK's object as one of ours. `msgspec.ValidationError` when it is something else."""
    try:
        return msgspec.convert(said, kind, from_attributes=True)
    except UnicodeEncodeError as error:  # half a character where something else than text belongs
        raise msgspec.ValidationError(str(error)) from None


def written_out(arguments: dict[str, Any]) -> str:
    """Arguments of a call as text, from a server that sent them as an object."""
    return encode(without_surrogates(arguments)).decode()


def ending(
    text: SpokenText, calls: WrittenCalls, reason: FinishReason, usage: Usage, private: str = ""
) -> list[ModelEvent]:
    """The rest of the text, the calls, the end. Calls come all together: only now it is known whether they were cut."""
    # Some servers say `stop` whatever the model did.
    told: FinishReason = "tool_calls" if calls and reason == "stop" else reason
    rest = text.end()
    return [
        *([TextPiece(rest)] if rest else []),
        *(CallWritten(call) for call in calls.written(cut=told == "length")),
        Finished(reason=told, usage=usage, private=private),
    ]
