"""Remembers what a model answers, so that a live run becomes a script.

It keeps answers and digests of requests, never requests, headers or keys. What a model said is kept as it was said:
secrets in it are for the caller to take out.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..domain.conversation import ProposedCall, Usage
from ..domain.errors import ModelError
from .digest import request_digest
from .interface import CallWritten, Finished, ModelEvent, ModelProvider, ModelRequest, Restarted, TextPiece
from .scripted import Fault, Turn


class Recorder:
    """A provider that passes everything on. `turns` has the answers so far, in the order of their requests.

    An answer that was left before its end is not in it.
    """

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self._asked = 0
        self._turns: dict[int, Turn] = {}

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self._turns[position] for position in sorted(self._turns))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        position, self._asked = self._asked, self._asked + 1
        digest = request_digest(request)
        heard = _Heard()
        try:
            async with aclosing(self._provider.stream(request)) as events:
                async for event in events:
                    heard.add(event)
                    if isinstance(event, Finished):
                        self._turns[position] = heard.turn(digest, end=event)
                    yield event
        except ModelError as error:
            fault = Fault(message=str(error), retryable=error.retryable, retry_after_seconds=error.retry_after_seconds)
            self._turns[position] = heard.turn(digest, fault=fault)
            raise

    async def close(self) -> None:
        await self._provider.close()


class _Heard:
    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[ProposedCall] = []

    def add(self, event: ModelEvent) -> None:
        match event:
            case TextPiece():
                self._text.append(event.text)
            case CallWritten():
                self._calls.append(event.call)
            case Restarted():
                self._text.clear()
                self._calls.clear()
            case Finished():
                pass

    def turn(self, digest: str, *, end: Finished | None = None, fault: Fault | None = None) -> Turn:
        return Turn(
            text="".join(self._text),
            calls=tuple(self._calls),
            reason=end.reason if end else None,
            usage=end.usage if end else Usage(),
            private=end.private if end else "",
            fault=fault,
            request=digest,
        )
