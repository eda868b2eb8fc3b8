"""Lines of messages on pipes: how the gateway talks to its client, and the client to servers.

A message is written at once while the pipe takes it. What it does not take is written as soon as it does, in order and
to its end, even if the task that sends it is cancelled: half a line would spoil every message behind it.
"""

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from .message_stream import MessageStream

if TYPE_CHECKING:  # the gateway writes lines before it loads the SDK
    from mcp.shared.message import SessionMessage

#: A task that sends more than this waits until the pipe has taken it.
_MAX_UNWRITTEN_BYTES = 1 << 16


class LineWriter:
    """The writing end of a pipe, as the SDK sends messages to it."""

    def __init__(self, fd: int, *, closes: bool = True) -> None:
        """
        Args:
            fd: The pipe. It is not made non-blocking: other processes may share it.
            closes: Close it at the end.
        """
        self._fd = fd
        self._closes = closes
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._unwritten = bytearray()
        self._is_broken = False
        self._is_watched = False
        self._changed = asyncio.Event()

    async def send(self, item: "SessionMessage", /) -> None:
        """Send a message of the SDK."""
        await self.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def write(self, line: bytes) -> None:
        """Send a line. Raise `anyio.ClosedResourceError` or `anyio.BrokenResourceError` when that is not possible."""
        if self._fd < 0:
            raise anyio.ClosedResourceError
        self._unwritten += line
        self._unwritten += b"\n"
        if not self._is_watched:
            self._write_some()
        while len(self._unwritten) > _MAX_UNWRITTEN_BYTES and not self._is_broken:
            await self._wait()
        if self._is_broken:
            raise anyio.BrokenResourceError

    async def drain(self) -> None:
        """Wait until everything is written."""
        while self._unwritten and not self._is_broken:
            await self._wait()

    async def aclose(self) -> None:
        """Close the pipe. What is not written is lost."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._is_broken = True
            self._unwatch(fd)
            if self._closes:
                os.close(fd)
            self._changed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _write_some(self) -> None:
        """Write what the pipe takes now. A pipe that is ready takes `PIPE_BUF` bytes without blocking."""
        written = 0
        try:
            while written < len(self._unwritten) and self._poll.poll(0):
                written += os.write(self._fd, self._unwritten[written : written + select.PIPE_BUF])
        except OSError:
            self._is_broken = True
            self._unwritten.clear()
        del self._unwritten[:written]
        if self._unwritten and not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().add_writer(self._fd, self._write_some)
        elif not self._unwritten:
            self._unwatch(self._fd)
        self._changed.set()

    def _unwatch(self, fd: int) -> None:
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_writer(fd)


class MessageQueue(MessageStream):
    """Messages that were read, as the SDK takes them."""

    def __init__(self, on_taken: Callable[[int], None] = lambda size_bytes: None) -> None:
        """
        Args:
            on_taken: Called with the size of every message that is taken.
        """
        self._waiting: deque[tuple[SessionMessage | Exception, int]] = deque()
        self._on_taken = on_taken
        self._receiver: asyncio.Future[None] | None = None
        self.waiting_bytes = 0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: "SessionMessage", size_bytes: int) -> None:
        """Add a message."""
        if not self.is_closed:
            self._waiting.append((message, size_bytes))
            self.waiting_bytes += size_bytes
            self._wake()

    def close(self) -> None:
        """Add nothing more. What waits can be taken."""
        self.is_closed = True
        self._wake()

    async def receive(self) -> "SessionMessage | Exception":
        """Return the next message. Raise `anyio.EndOfStream` behind the last one."""
        while not self._waiting:
            if self.is_closed:
                raise anyio.EndOfStream
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        message, size_bytes = self._waiting.popleft()
        self.waiting_bytes -= size_bytes
        self._on_taken(size_bytes)
        return message

    async def aclose(self) -> None:
        """Close it."""
        self.close()

    def _wake(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)
