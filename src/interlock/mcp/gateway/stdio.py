"""Serve a client over standard input and output.

Messages are read strictly: one line is one JSON value, without duplicate keys, NaN or deep nesting, and of limited
size. What is not one is answered as a parse error, and nothing of it reaches a run.
"""

import asyncio
import os
import select
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ...domain.json import InvalidJsonError, parse

MAX_MESSAGE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 16
#: Messages that were read and not yet handled. More stay in the pipe.
_MAX_WAITING = 64
#: How long the client may take to read the last messages.
_DRAIN_SECONDS = 2.0

MessageStreams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


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
    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](_MAX_WAITING)
    outgoing_send, outgoing = anyio.create_memory_object_stream[SessionMessage](_MAX_WAITING)
    replies = outgoing_send.clone()
    reader = asyncio.create_task(_read_lines(read_end, incoming_send, replies))
    writer = asyncio.create_task(_write_lines(write_end, outgoing))
    try:
        yield incoming, outgoing_send
    finally:
        reader.cancel()
        await asyncio.wait((reader,))
        incoming.close()
        outgoing_send.close()
        replies.close()
        await asyncio.wait((writer,), timeout=_DRAIN_SECONDS)
        writer.cancel()


async def _read_lines(
    file: int,
    messages: MemoryObjectSendStream[SessionMessage | Exception],
    replies: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Read messages until the end of the input. Those that are not accepted are answered here."""
    buffer = bytearray()
    is_skipping = False
    async with messages:
        while chunk := await _read_chunk(file):
            buffer += chunk
            *lines, rest = buffer.split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                if is_skipping:  # the end of a line that was too long
                    is_skipping = False
                elif line.strip():
                    await _deliver(bytes(line), messages, replies)
            if len(buffer) > MAX_MESSAGE_BYTES and not is_skipping:
                await _deliver(bytes(buffer), messages, replies)
                is_skipping = True
            if is_skipping:
                buffer.clear()


async def _deliver(
    line: bytes,
    messages: MemoryObjectSendStream[SessionMessage | Exception],
    replies: MemoryObjectSendStream[SessionMessage],
) -> None:
    try:
        message = read_message(line)
    except MessageError as error:
        problem = types.ErrorData(code=error.code, message=str(error))
        await replies.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=problem)))
    else:
        await messages.send(SessionMessage(message))


async def _write_lines(file: int, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write messages until there are no more. A client that does not read blocks nothing else."""
    async with messages:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            for start in range(0, len(line), select.PIPE_BUF):
                part = line[start : start + select.PIPE_BUF]
                while part:
                    await _wait_writable(file)
                    part = part[os.write(file, part) :]


async def _read_chunk(file: int) -> bytes:
    """Read the next bytes. The file is not made non-blocking: other processes may share it."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    try:
        loop.add_reader(file, _set_ready, ready)
    except PermissionError:  # a regular file is always ready
        return os.read(file, _CHUNK_BYTES)
    try:
        await ready
    finally:
        loop.remove_reader(file)
    return os.read(file, _CHUNK_BYTES)


async def _wait_writable(file: int) -> None:
    looking = select.poll()
    looking.register(file, select.POLLOUT)
    if looking.poll(0):
        return
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(file, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_writer(file)


def _set_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
