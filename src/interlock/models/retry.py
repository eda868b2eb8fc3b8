"""Retries of requests: rate limits, server errors, broken connections.

A provider says what may help (`ModelError.retryable`); here is only how often, and how long between.
"""

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ..domain.errors import ConfigurationError, ModelError
from .interface import ModelEvent, ModelProvider, ModelRequest, StreamRestarted


def with_retries(  # noqa: PLR0913 - one for each thing that may be chosen
    provider: ModelProvider,
    attempts: int = 4,
    *,
    first_wait_seconds: float = 0.5,
    max_wait_seconds: float = 30.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = randomness.random,
) -> ModelProvider:
    """Return the provider with retries. Waits double from the first one on, with jitter; what the server asks for is
    respected up to `max_wait_seconds`.
    """
    if attempts < 1 or first_wait_seconds < 0 or max_wait_seconds < 0:
        raise ConfigurationError("Retries need at least one attempt, and waits that are not negative.")

    def wait_seconds(attempt: int, error: ModelError) -> float:
        doubled = first_wait_seconds * 2.0 ** min(attempt - 1, 64) * (0.5 + random() / 2)
        return min(max_wait_seconds, max(doubled, error.retry_after_seconds or 0.0))

    return _RetryingModel(provider, attempts, wait_seconds, sleep)


class _RetryingModel:
    def __init__(
        self,
        provider: ModelProvider,
        attempts: int,
        wait_seconds: Callable[[int, ModelError], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._provider = provider
        self._attempts = attempts
        self._wait_seconds = wait_seconds
        self._sleep = sleep

    @property
    def name(self) -> str:
        return self._provider.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        attempt = 0
        while True:
            attempt += 1
            has_output = False
            try:
                async with aclosing(self._provider.stream(request)) as events:
                    async for event in events:
                        has_output = True
                        yield event
                return
            except ModelError as error:
                if not error.retryable:
                    raise
                if attempt == self._attempts:
                    raise _retries_exhausted_error(error, attempt) from None
                wait = self._wait_seconds(attempt, error)
                reason = str(error)
            if has_output:
                yield StreamRestarted(reason)
            await self._sleep(wait)

    async def close(self) -> None:
        await self._provider.close()


def _retries_exhausted_error(error: ModelError, attempts: int) -> ModelError:
    tried = f"{error} It was tried {attempts} times." if attempts > 1 else str(error)
    return ModelError(tried, retryable=True, retry_after_seconds=error.retry_after_seconds)
