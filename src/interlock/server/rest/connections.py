"""Connection limits, before there is a request and while its response is read.

uvicorn waits for the head of a request as long as it takes. Here a connection on which no request is under way has so
many seconds to send the whole head of one, however its bytes trickle in; so has one whose request was answered before
its body had come. A client that does not read its response is disconnected. When there are as many connections as
there may be, the one that has been idle longest makes room.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
#: How long a client may take to make room for more of a response.
SEND_SECONDS = 30.0
#: Below the 1,024 files that a process may usually have open.
MAX_CONNECTIONS = 800
#: In the scope of a request whose whole body came with its head, so that there is nothing to wait for.
WHOLE_BODY = "interlock.whole_body"
_MAX_HELD_BYTES = 16 << 10


class BoundedHttpProtocol(H11Protocol):
    """The protocol for uvicorn: `Config(..., http=BoundedHttpProtocol)`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: For the head of a request, and for a client that does not read.
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        #: Since when no request is under way.
        self.idle_since = self.loop.time()

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.transport = JoinedWrites(transport, self.loop)
        self._expect_head()
        connections = cast(set[object], self.connections)
        if len(connections) > MAX_CONNECTIONS:
            idle = [each for each in connections if isinstance(each, BoundedHttpProtocol) and each.is_idle]
            min(idle, key=lambda each: each.idle_since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_idle:
            self._expect_head()

    def handle_events(self) -> None:
        super().handle_events()
        if not self.is_idle:
            self._head_timer = _cancel(self._head_timer)
            if not self.cycle.more_body:
                cast(dict[str, Any], self.scope)[WHOLE_BODY] = True

    def on_response_complete(self) -> None:
        self.idle_since = self.loop.time()
        cast(JoinedWrites, self.transport).flush()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a next request, also where its client does not read the rest of a response."""
        super().timeout_keep_alive_handler()
        self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_timer = self._send_timer or self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_timer = _cancel(self._send_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer, self._send_timer = _cancel(self._head_timer), _cancel(self._send_timer)
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        """Disconnect unless a whole head comes in time. While nothing at all comes, uvicorn closes earlier."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_at(self.idle_since + HEAD_SECONDS, self.transport.abort)


class JoinedWrites(asyncio.Transport):
    """A transport that sends what is written together, such as a head and a short body, at once: it holds what is short
    until more is written or flushed, or other work begins.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: bytes | bytearray | memoryview = b""
        self._flushing: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._held:
            self._held = b"".join((self._held, data))
            self.flush()
        elif len(data) > _MAX_HELD_BYTES:
            self._transport.write(data)
        elif data:
            self._held = data
            self._flushing = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is held."""
        if held := self._take():
            self._transport.write(held)

    def _take(self) -> bytes | bytearray | memoryview:
        if self._flushing is not None:
            self._flushing.cancel()
        held, self._held, self._flushing = self._held, b"", None
        return held

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._take()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
