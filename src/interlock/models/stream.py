"""What answers have in common, whoever gave them: how they are read, and how they end."""

from typing import Any, TypeVar

import msgspec

from ..domain.json import encode, escape_surrogates
from ..domain.messages import Usage
from .calls import CallAssembler
from .interface import ToolCallDelta, StreamFinished, FinishReason, ModelEvent, TextDelta
from .text import TextAssembler

_T = TypeVar("_T")


def convert_event(kind: type[_T], event: object) -> _T:
    """An SDK's object as one of ours. `msgspec.ValidationError` when it is something else."""
    try:
        return msgspec.convert(event, kind, from_attributes=True)
    except UnicodeEncodeError as error:  # half a character where something else than text belongs
        raise msgspec.ValidationError(str(error)) from None


def encode_arguments(arguments: dict[str, Any]) -> str:
    """Arguments of a call as text, from a server that sent them as an object."""
    return encode(escape_surrogates(arguments)).decode()


def build_final_events(
    text: TextAssembler, calls: CallAssembler, reason: FinishReason, usage: Usage, private: str = ""
) -> list[ModelEvent]:
    """The rest of the text, the calls, the end. Calls come all together: only now it is known whether they were cut."""
    # Some servers say `stop` whatever the model did.
    finish_reason: FinishReason = "tool_calls" if calls and reason == "stop" else reason
    rest = text.finish()
    return [
        *([TextDelta(rest)] if rest else []),
        *(ToolCallDelta(call) for call in calls.finish(cut=finish_reason == "length")),
        StreamFinished(reason=finish_reason, usage=usage, private=private),
    ]
