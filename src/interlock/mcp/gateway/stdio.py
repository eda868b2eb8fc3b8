"""Serve a client over standard input and output.

Messages are read strictly: one line is one JSON value, without duplicate keys, NaN or deep nesting, and of limited
size. What is not one is answered as a parse error, and nothing of it reaches a run.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ...domain.json import InvalidJsonError, parse
from ..client.pipes import LineWriter, MessageQueue

MAX_MESSAGE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 16
#: Messages that were read and not yet handled. More stay in the pipe.
_MAX_WAITING = 64
#: How long the client may take to read the last messages.
_DRAIN_SECONDS = 2.0

MessageStreams: TypeAlias = tuple[MessageQueue, LineWriter]


class MessageError(ValueError):
    """A message that is not accepted, with the JSON-RPC code of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_message(line: bytes) -> types.JSONRPCMessage:
    """Return the message of a line. Raise `MessageError` for what is none."""
    if len(line) > MAX_MESSAGE_BYTES:
        raise MessageError(types.PARSE_ERROR, f"A message has more than {MAX_MESSAGE_BYTES} bytes.")
    try:
        value: Any = parse(line)
    except InvalidJsonError as error:
        raise MessageError(types.PARSE_ERROR, f"A message is not strict JSON: {error}.") from None
    try:
        return types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        raise MessageError(types.INVALID_REQUEST, "A message is not JSON-RPC 2.0.") from None


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[MessageStreams]:
    """Yield streams of messages on standard input and output. Whatever else the process prints goes to the standard
    error: the output belongs to the protocol.
    """
    read_end, write_end = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    async with message_streams(read_end, write_end) as streams:
        yield streams


@asynccontextmanager
async def message_streams(read_end: int, write_end: int) -> AsyncGenerator[MessageStreams]:
    """Yield streams of the messages that are read from one file and written to another."""
    outgoing = LineWriter(write_end, closes=False)
    reader = _MessageReader(read_end, outgoing)
    reader.watch()
    try:
        yield reader.messages, outgoing
    finally:
        reader.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await outgoing.drain()
        await outgoing.aclose()


class _MessageReader:
    """Reads messages until the end of the input. Those that are not accepted are answered here."""

    def __init__(self, fd: int, replies: LineWriter) -> None:
        self.messages = MessageQueue(on_taken=self._on_taken)
        self._fd = fd
        self._replies = replies
        self._loop = asyncio.get_running_loop()
        self._line = bytearray()
        #: The rest of a line that was too long is left out.
        self._is_skipping = False
        self._is_watched = False
        self._replying: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Read whenever there is something. The file is not made non-blocking: other processes may share it."""
        self._is_watched = True
        try:
            self._loop.add_reader(self._fd, self._read)
        except PermissionError:  # a regular file is always ready
            self._loop.call_soon(self._read_file)

    def close(self) -> None:
        """Read no more."""
        self._pause()
        self.messages.close()

    @property
    def _is_full(self) -> bool:
        return len(self.messages) + len(self._replying) >= _MAX_WAITING

    def _on_taken(self, size_bytes: int = 0) -> None:
        if not self._is_watched and not self.messages.is_closed and not self._is_full:
            self.watch()

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
                self._deliver(whole)
        if not self._is_skipping:
            self._line += rest
        if len(self._line) > MAX_MESSAGE_BYTES:
            self._deliver(bytes(self._line))
            self._line.clear()
            self._is_skipping = True
        if self._is_full:
            self._pause()

    def _deliver(self, line: bytes) -> None:
        try:
            message = read_message(line)
        except MessageError as error:
            problem = types.ErrorData(code=error.code, message=str(error))
            reply = SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=problem))
            self._replying.add(task := self._loop.create_task(self._reply(reply)))
            task.add_done_callback(self._on_replied)
        else:
            self.messages.add(SessionMessage(message), len(line))

    def _on_replied(self, task: "asyncio.Task[None]") -> None:
        self._replying.discard(task)
        self._on_taken()

    async def _reply(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client is gone
            await self._replies.send(message)
