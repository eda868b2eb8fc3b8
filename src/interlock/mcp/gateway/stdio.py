"""Serve a client over standard input and output.

Messages are read strictly: one line is one JSON value, without duplicate keys, NaN or deep nesting, and of limited
size. What is not one is answered as a parse error, and nothing of it reaches a run.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ...domain.json import InvalidJsonError, parse
from ..client.pipes import LineWriter, MessageQueue
from .stdio_lines import MAX_MESSAGE_BYTES, MAX_WAITING, LineConnection, open_lines

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
async def message_streams(read_end: int, write_end: int) -> AsyncGenerator[MessageStreams]:
    """Yield streams of the messages that are read from one file and written to another."""
    async with open_lines(read_end, write_end) as connection:
        yield read_messages(connection)


def read_messages(connection: LineConnection) -> MessageStreams:
    """Return streams of the messages of a client, as the SDK takes them."""
    reader = _MessageReader(connection)
    connection.hand_over(reader)
    return reader.messages, connection.writer


class _MessageReader:
    """Reads messages. Those that are not accepted are answered here."""

    def __init__(self, connection: LineConnection) -> None:
        self.messages = MessageQueue(on_taken=self._on_taken)
        self._connection = connection
        self._replying: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """True when no more messages are taken now."""
        return len(self.messages) + len(self._replying) >= MAX_WAITING

    def deliver(self, line: bytes) -> None:
        """Take a line."""
        try:
            message = read_message(line)
        except MessageError as error:
            problem = types.ErrorData(code=error.code, message=str(error))
            reply = SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=problem))
            self._replying.add(task := asyncio.create_task(self._reply(reply)))
            task.add_done_callback(self._on_replied)
        else:
            self.messages.add(SessionMessage(message), len(line))

    def close(self) -> None:
        """Take note that there are no more lines."""
        self.messages.close()

    def _on_taken(self, size_bytes: int = 0) -> None:
        if not self.messages.is_closed:
            self._connection.resume()

    def _on_replied(self, task: "asyncio.Task[None]") -> None:
        self._replying.discard(task)
        self._on_taken()

    async def _reply(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client is gone
            await self._connection.writer.send(message)
