"""A stream of messages as the SDK reads it. An implementation says how one is received, and how it is closed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:  # the gateway writes lines before it loads the SDK
    from mcp.shared.message import SessionMessage


class MessageStream(ABC):
    """The part of the SDK's `ReadStream` that is the same for every stream."""

    @abstractmethod
    async def receive(self) -> "SessionMessage | Exception":
        """Return the next message. Raise `anyio.EndOfStream` behind the last one."""

    @abstractmethod
    async def aclose(self) -> None: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        await self.aclose()
