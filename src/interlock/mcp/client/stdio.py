"""MCP over the pipes of a server that is started here, in the command sandbox.

The server is a command like any other (`sandbox/commands`), only that it lives long and has a standard input. What it
prints is untrusted: a line is a message of bounded size, what was read and not yet taken is bounded as well, and
standard error is kept in part. A server that goes over a limit, or sends a message that cannot be read, is ended.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ...domain.errors import SandboxSetupError
from ...sandbox.interface import OutputHandler, OutputStream, RunningCommand
from .message_stream import MessageStream

#: A message of a server, and all messages that wait to be taken.
MAX_MESSAGE_BYTES = 16 << 20
_MAX_WAITING_BYTES = 64 << 20
MAX_STDERR_BYTES = 16 << 10
#: For a server to end by itself once its standard input is closed.
_END_SECONDS = 2.0

#: Starts the server with this standard input, and hands on what it prints.
StartServer = Callable[[int, OutputHandler], Awaitable[RunningCommand]]


class _Incoming(MessageStream):
    """The messages of a server, as the SDK reads them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[SessionMessage, int]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    def add(self, message: SessionMessage, size_bytes: int) -> bool:
        """Add a message. Return False when too much waits already."""
        if self._is_closed:
            return True
        self._waiting.append((message, size_bytes))
        self._waiting_bytes += size_bytes
        self._changed.set()
        return self._waiting_bytes <= _MAX_WAITING_BYTES

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def receive(self) -> SessionMessage | Exception:
        while not self._waiting:
            if self._is_closed:
                raise anyio.EndOfStream
            self._changed.clear()
            await self._changed.wait()
        message, size_bytes = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        return message

    async def aclose(self) -> None:
        self.close()


class _Outgoing:
    """The standard input of a server, as the SDK writes to it."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._writing = asyncio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._writing:
            left = memoryview(line)
            while left:
                if self._fd < 0:
                    raise anyio.ClosedResourceError
                try:
                    left = left[os.write(self._fd, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._fd)
                except BrokenPipeError:
                    raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            anyio.notify_closing(fd)
            os.close(fd)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class StdioTransport:
    """A transport of the SDK: a server that runs from entering it to leaving it."""

    def __init__(self, start: StartServer, on_end: Callable[[str], None]) -> None:
        """
        Args:
            start: Starts the server.
            on_end: Called with the reason when the server has ended by itself, or had to be ended.
        """
        self._start = start
        self._on_end = on_end
        self._incoming = _Incoming()
        self._line = bytearray()
        self._stderr = b""
        self._stderr_bytes = 0
        self._problem = ""
        self._running: RunningCommand | None = None
        self._watching: asyncio.Task[None] | None = None
        self._outgoing: _Outgoing | None = None

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to standard error."""
        left_out = self._stderr_bytes - len(self._stderr)
        note = f"[{left_out:,} bytes left out] " if left_out else ""
        return note + self._stderr.decode(errors="replace")

    async def __aenter__(self) -> TransportStreams:
        its_end, ours = os.pipe()
        self._outgoing = _Outgoing(ours)
        try:
            self._running = await self._start(its_end, self._receive)
        except BaseException:
            await self._outgoing.aclose()
            raise
        finally:
            os.close(its_end)
        self._watching = asyncio.create_task(self._watch(self._running))
        return self._incoming, self._outgoing

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if self._outgoing is not None:
            await self._outgoing.aclose()
        self._incoming.close()
        running, watching = self._running, self._watching
        if running is None or watching is None:
            return
        self._on_end = _ignore_end
        ending = asyncio.create_task(_end(running, watching))
        with anyio.CancelScope(shield=True):
            await ending

    def _receive(self, stream: OutputStream, chunk: bytes) -> None:
        if stream == "stderr":
            self._stderr = (self._stderr + chunk)[-MAX_STDERR_BYTES:]
            self._stderr_bytes += len(chunk)
            return
        if self._problem:
            return
        first, *lines = chunk.split(b"\n")
        if len(self._line) + len(first) > MAX_MESSAGE_BYTES:
            self._end_for(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
            return
        self._line += first
        for line in lines:
            self._take(bytes(self._line))
            self._line[:] = line

    def _take(self, line: bytes) -> None:
        if not line.strip() or self._problem:
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            # Some servers print words to standard output. They are no messages, so nothing waits for them.
            if b'"jsonrpc"' in line:
                self._end_for("it sent a message that cannot be read")
            else:
                self._receive("stderr", line + b"\n")
            return
        if not self._incoming.add(SessionMessage(message), len(line)):
            self._end_for(f"it sent more than {_MAX_WAITING_BYTES:,} bytes that were not asked for")

    def _end_for(self, problem: str) -> None:
        """End the server: what waits for an answer is informed, and the command is stopped."""
        self._problem = problem
        self._line.clear()
        self._on_end(problem)
        self._incoming.close()
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, running: RunningCommand) -> None:
        """Report the end of the server. Cancelling this stops the command."""
        reason = ""
        try:
            ended = await running.wait()
            reason = f"it ended ({ended.signal or f'exit code {ended.exit_code}'})"
            if ended.reason != "exited":
                reason = f"it was ended: {ended.reason.replace('_', ' ')}"
        except SandboxSetupError as error:
            reason = str(error)
        finally:
            self._incoming.close()
            self._on_end(self._problem or reason or "it was stopped")


async def _end(running: RunningCommand, watching: "asyncio.Task[None]") -> None:
    """Wait for a server whose standard input is closed, then stop it."""
    await asyncio.wait((watching,), timeout=_END_SECONDS)
    if not watching.done():
        watching.cancel()
    await asyncio.wait((watching,))
    await running.stop()


def _ignore_end(reason: str) -> None:
    """Ignore the end: the transport is left on purpose."""
