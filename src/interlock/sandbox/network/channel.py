"""Byte streams of the proxy: a socket of the event loop, and TLS on top of one."""

import asyncio
import fcntl
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

CHUNK_BYTES = 256 * 1024
#: Of the pipe; and what is moved, within a millisecond, before others have their turn.
_PIPE_BYTES, _YIELD_BYTES = 1 << 20, 1 << 20
_T = TypeVar("_T")


class Channel(Protocol):
    """A stream in both directions."""

    async def receive(self) -> bytes:
        """Return the next bytes; empty at the end."""
        ...

    async def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class SocketChannel:
    """A connected, non-blocking socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._loop = asyncio.get_running_loop()

    async def receive(self) -> bytes:
        """Return the next bytes; empty at the end."""
        return await self._loop.sock_recv(self.socket, CHUNK_BYTES)

    async def send(self, data: bytes) -> None:
        """Send all of the bytes."""
        await self._loop.sock_sendall(self.socket, data)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


async def move_bytes(source: socket.socket, target: socket.socket, on_moved: Callable[[int], None]) -> None:
    """Move everything from one socket to another through a pipe, so that no byte is copied to this process."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a limit of the user; the default size works, too
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        unyielded = 0
        while size := await _splice(source.fileno(), write_end, _PIPE_BYTES):
            on_moved(size)
            unyielded += size
            while size:
                size -= await _splice(read_end, target.fileno(), size, is_sending=True)
            if unyielded > _YIELD_BYTES:
                unyielded = 0
                await asyncio.sleep(0)
    finally:
        os.close(read_end)
        os.close(write_end)


async def _splice(source: int, target: int, size: int, *, is_sending: bool = False) -> int:
    """Move bytes from a socket to a pipe, or to a socket, once it is ready for that. Return how many."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.splice(source, target, size, flags=os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE)
        except BlockingIOError:
            ready = asyncio.Event()
            if is_sending:
                loop.add_writer(target, ready.set)
            else:
                loop.add_reader(source, ready.set)
            try:
                await ready.wait()
            finally:
                if is_sending:
                    loop.remove_writer(target)
                else:
                    loop.remove_reader(source)


class TlsChannel:
    """TLS on a channel. `received`: bytes that were read from it before."""

    def __init__(
        self,
        inner: Channel,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        received: bytes | None = None,
    ) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(received or b"")
        is_server = server_hostname is None
        self._tls = context.wrap_bio(self._incoming, self._outgoing, is_server, server_hostname)
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        """Do the handshake. Raise `ssl.SSLError` when it fails."""
        try:
            await self._run(self._tls.do_handshake)
        except ssl.SSLError:
            with suppress(OSError):
                await self._flush()  # the alert
            raise

    async def receive(self) -> bytes:
        """Return the next bytes; empty at the end."""
        try:
            return await self._run(partial(self._tls.read, CHUNK_BYTES))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def send(self, data: bytes) -> None:
        """Send all of the bytes."""
        await self._run(partial(self._tls.write, data))

    def close(self) -> None:
        """Close the channel below."""
        self._inner.close()

    async def _run(self, step: Callable[[], _T]) -> _T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._inner.receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
                continue
            await self._flush()
            return result

    async def _flush(self) -> None:
        # Two senders at once would mix their records.
        async with self._sending:
            if data := self._outgoing.read():
                await self._inner.send(data)
