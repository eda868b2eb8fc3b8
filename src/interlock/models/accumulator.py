"""Accumulates a streamed response, with limits.

Adapters limit what a server sends. A custom provider may not, and its stream may never end.
"""

from ..domain.errors import ModelError
from ..domain.messages import ProposedCall
from .interface import MAX_ANSWER_CHARS, ModelEvent, StreamRestarted, TextDelta, ToolCallDelta

#: As many as one batch may have. Adapters allow fewer, since a server sends them all at once.
MAX_CALLS = 4096


class StreamAccumulator:
    """Text and calls of one response. `add` raises `ModelError` when it exceeds the limits."""

    __slots__ = ("_chars", "_pieces", "calls")

    def __init__(self) -> None:
        self.calls: list[ProposedCall] = []
        self._pieces: list[str] = []
        self._chars = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self._pieces.append(event.text)
                self._chars += len(event.text)
            case ToolCallDelta():
                self.calls.append(event.call)
            case StreamRestarted():
                self._pieces.clear()
                self.calls.clear()
                self._chars = 0
            case _:
                pass
        if self._chars > MAX_ANSWER_CHARS:
            raise ModelError(
                f"The model said more than {MAX_ANSWER_CHARS} characters in one answer. Nothing was executed."
            )
        if len(self.calls) > MAX_CALLS:
            raise ModelError(f"The model wrote more than {MAX_CALLS} calls in one answer. Nothing was executed.")
