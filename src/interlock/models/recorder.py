"""Records the responses of a model, so that a live run becomes a script.

It keeps answers and digests of requests, never requests, headers or keys. What a model said is kept as it was said:
secrets in it are for the caller to take out.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..domain.errors import ModelError
from ..domain.messages import Usage
from .accumulator import StreamAccumulator
from .interface import ModelEvent, ModelProvider, ModelRequest, StreamFinished
from .scripted import ScriptedFault, ScriptedTurn, request_digest


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
        return self._provider.name

    @property
    def turns(self) -> tuple[ScriptedTurn, ...]:
        return tuple(self._turns[position] for position in sorted(self._turns))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        position, self._asked = self._asked, self._asked + 1
        digest = request_digest(request)
        accumulator = StreamAccumulator()
        try:
            async with aclosing(self._provider.stream(request)) as events:
                async for event in events:
                    accumulator.add(event)
                    if isinstance(event, StreamFinished):
                        self._turns[position] = _turn(accumulator, digest, end=event)
                    yield event
        except ModelError as error:
            fault = ScriptedFault(
                message=str(error), retryable=error.retryable, retry_after_seconds=error.retry_after_seconds
            )
            self._turns[position] = _turn(accumulator, digest, fault=fault)
            raise

    async def close(self) -> None:
        await self._provider.close()


def _turn(
    accumulator: StreamAccumulator,
    digest: str,
    *,
    end: StreamFinished | None = None,
    fault: ScriptedFault | None = None,
) -> ScriptedTurn:
    return ScriptedTurn(
        text=accumulator.text,
        calls=tuple(accumulator.calls),
        reason=end.reason if end else None,
        usage=end.usage if end else Usage(),
        private=end.private if end else "",
        fault=fault,
        request=digest,
    )
