"""Lines on standard input and output, before anybody knows what they mean: nothing here loads the SDK."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from ..client.pipes import LineWriter
from .first_answers import FirstAnswers

MAX_MESSAGE_BYTES = 4 << 20
#: Messages that were read and not yet handled. More stay in the pipe.
MAX_WAITING = 64
_CHUNK_BYTES = 1 << 16
#: How long the client may take to read the last messages.
_DRAIN_SECONDS = 2.0


class LineReceiver(Protocol):
    """Takes the lines that are read."""

    @property
    def is_full(self) -> bool:
        """True when it takes no more now."""
        ...

    def deliver(self, line: bytes) -> None:
        """Take a line, without its end."""
        ...

    def close(self) -> None:
        """Take note that there are no more lines."""
        ...


class LineReader:
    """Reads lines until the end of the input. Of a line that is too long, the rest is left out."""

    def __init__(self, fd: int, receiver: LineReceiver) -> None:
        self._fd = fd
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._line = bytearray()
        self._is_skipping = False
        self._is_watched = False
        self._is_closed = False

    def resume(self) -> None:
        """Read whenever there is something and the receiver takes it. The file is not made non-blocking: other
        processes may share it.
        """
        if self._is_watched or self._is_closed or self._receiver.is_full:
            return
        self._is_watched = True
        try:
            self._loop.add_reader(self._fd, self._read)
        except PermissionError:  # a regular file is always ready
            self._loop.call_soon(self._read_file)

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._pause()
        self._receiver.close()

    def _pause(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)

    def _read_file(self) -> None:
        while self._is_watched:
            self._read()

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line
            self._line.clear()
            if self._is_skipping:
                self._is_skipping = False
            elif whole.strip():
                self._receiver.deliver(whole)
        if not self._is_skipping:
            self._line += rest
        if len(self._line) > MAX_MESSAGE_BYTES:
            self._receiver.deliver(bytes(self._line))
            self._line.clear()
            self._is_skipping = True
        if self._receiver.is_full:
            self._pause()


class LineConnection:
    """The lines of a client. Requests whose answers are known are answered; all lines are kept until `hand_over`."""

    def __init__(self, read_end: int, writer: LineWriter, first: FirstAnswers | None = None) -> None:
        self.writer = writer
        self.first = first
        self._receiver: LineReceiver | None = None
        self._waiting: deque[bytes] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._reader = LineReader(read_end, self)
        self._reader.resume()

    @property
    def is_full(self) -> bool:
        """True when no more lines are taken now."""
        return len(self._waiting) >= MAX_WAITING if self._receiver is None else self._receiver.is_full

    def deliver(self, line: bytes) -> None:
        """Take a line, and answer it if its answer is known."""
        if self.first is not None and (answer := self.first.find(line)) is not None:
            self._sending.add(task := asyncio.create_task(self._send(answer)))
            task.add_done_callback(self._sending.discard)
        if self._receiver is None:
            self._waiting.append(line)
        else:
            self._receiver.deliver(line)

    def close(self) -> None:
        """Take note that there are no more lines."""
        self._is_closed = True
        if self._receiver is not None:
            self._receiver.close()

    def hand_over(self, receiver: LineReceiver) -> None:
        """Deliver the lines that were kept, and those that come."""
        self._receiver = receiver
        while self._waiting:
            receiver.deliver(self._waiting.popleft())
        if self._is_closed:
            receiver.close()
        self.resume()

    def resume(self) -> None:
        """Read on: the receiver takes more."""
        self._reader.resume()

    async def aclose(self) -> None:
        """Read no more, write what is left, and release the output."""
        self._reader.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self.writer.drain()
        await self.writer.aclose()

    async def _send(self, line: bytes) -> None:
        with suppress(OSError, RuntimeError):  # the client is gone, which the reader learns
            await LineWriter.write(self.writer, line)


@asynccontextmanager
async def open_stdio(first: FirstAnswers | None = None) -> AsyncGenerator[LineConnection]:
    """Yield the lines on standard input and output. Whatever else the process prints goes to the standard error: the
    output belongs to the protocol.
    """
    read_end, write_end = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    async with open_lines(read_end, write_end, first) as connection:
        yield connection


@asynccontextmanager
async def open_lines(
    read_end: int, write_end: int, first: FirstAnswers | None = None
) -> AsyncGenerator[LineConnection]:
    """Yield the lines that are read from one file and written to another."""
    writer = LineWriter(write_end, closes=False) if first is None else _CheckedWriter(write_end, first)
    connection = LineConnection(read_end, writer, first)
    try:
        yield connection
    finally:
        await connection.aclose()


class _CheckedWriter(LineWriter):
    """Leaves out answers that the client has."""

    def __init__(self, fd: int, first: FirstAnswers) -> None:
        super().__init__(fd, closes=False)
        self._first = first

    async def write(self, line: bytes) -> None:
        """Send a line, unless it was sent before."""
        if self._first.is_over or not self._first.settle(line):
            await super().write(line)
