"""MCP over the pipes of a server that is started here, in the command sandbox.

The server is a command like any other (`sandbox/commands`), only that it lives long and has a standard input. What it
prints is untrusted: a line is a message of bounded size, what was read and not yet taken is bounded as well, and
standard error is kept in part. A server that goes over a limit, or sends a message that cannot be read, is ended.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from ...domain.errors import SandboxSetupError
from ...sandbox.interface import OutputHandler, OutputStream, RunningCommand
from .call_channel import CallChannel
from .pipes import LineWriter, MessageQueue

#: A message of a server, and all messages that wait to be taken.
MAX_MESSAGE_BYTES = 16 << 20
_MAX_WAITING_BYTES = 64 << 20
MAX_STDERR_BYTES = 16 << 10
#: For a server to end by itself once its standard input is closed.
_END_SECONDS = 2.0

#: Of the metadata that the protocol wants with every request, since the versions without a handshake.
_PROTOCOL_PREFIX = "io.modelcontextprotocol/"

#: Starts the server with this standard input, and hands on what it prints.
StartServer = Callable[[int, OutputHandler], Awaitable[RunningCommand]]


class _Outgoing(LineWriter):
    """The standard input of a server. Remembers what a session says of itself with every request."""

    envelope: Mapping[str, Any] = MappingProxyType({})

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message of the SDK."""
        if isinstance(item.message, JSONRPCRequest) and item.message.method == "tools/list":
            meta: dict[str, Any] = (item.message.params or {}).get("_meta") or {}
            self.envelope = {key: value for key, value in meta.items() if key.startswith(_PROTOCOL_PREFIX)}
        await super().send(item)


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
        self._incoming = MessageQueue()
        self._line = bytearray()
        self._stderr = b""
        self._stderr_bytes = 0
        self._problem = ""
        self._running: RunningCommand | None = None
        self._watching: asyncio.Task[None] | None = None
        self._outgoing: _Outgoing | None = None
        #: Called when the server says that its tools changed, before the result of a call that it sends behind that.
        self.on_tools_changed: Callable[[], None] = _ignore_change
        #: For calls of tools, once it was entered.
        self.calls: CallChannel | None = None

    @property
    def envelope(self) -> Mapping[str, Any]:
        """The metadata that the session of this transport sends with every request."""
        return {} if self._outgoing is None else self._outgoing.envelope

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
        self.calls = CallChannel(self._outgoing.write)
        return self._incoming, self._outgoing

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if self._outgoing is not None:
            await self._outgoing.aclose()
        self._close_incoming()
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
        if not line.strip() or self._problem or (self.calls is not None and self.calls.take_line(line)):
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
        if self.calls is not None and self.calls.take_message(message):
            return
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/tools/list_changed":
            self.on_tools_changed()
        self._incoming.add(SessionMessage(message), len(line))
        if self._incoming.waiting_bytes > _MAX_WAITING_BYTES:
            self._end_for(f"it sent more than {_MAX_WAITING_BYTES:,} bytes that were not asked for")

    def _end_for(self, problem: str) -> None:
        """End the server: what waits for an answer is informed, and the command is stopped."""
        self._problem = problem
        self._line.clear()
        self._on_end(problem)
        self._close_incoming()
        if self._watching is not None:
            self._watching.cancel()

    def _close_incoming(self) -> None:
        self._incoming.close()
        if self.calls is not None:
            self.calls.close()

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
            self._close_incoming()
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


def _ignore_change() -> None:
    """Ignore a change: no list is relied on."""
