"""Server-sent events: what a run, or the whole server, does right now.

A stream begins after an event that the reader knows (`Last-Event-ID`, or a query parameter), so a reconnect
misses nothing and sees nothing twice. It is one task: it waits for events, for the reader to go away, and for the next
check of its permission. A reader that takes too long for one chunk is disconnected (`connections`); it comes
back with the last id that it has. Whatever happens, its place among the readers is given back.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from time import monotonic
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..core.live.event_reader import EventReader
from ..core.live.live_event import LiveEvent
from ..core.live.outputs import LiveOutput
from .responses import build_response, encode
from .schemas.runs import OutputResponse

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
RETRY_MS = 1_000
_HEARTBEAT_MESSAGE = b": still here\n\n"


class StreamSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream follows."""

    reader: AbstractAsyncContextManager[EventReader]
    #: The bytes for one event; empty: it is not shown here.
    encode: Callable[[LiveEvent], bytes]
    #: Why it is over, as data of its last event, checked after each page; None: it continues.
    find_end: Callable[[Sequence[LiveEvent]], Awaitable[dict[str, Any] | None]]
    #: Whether the reader may still read. Checked at every heartbeat.
    check_access: Callable[[], Awaitable[bool]]
    heartbeat_seconds: float = HEARTBEAT_SECONDS


def encode_message(event: str, data: Any, event_id: int | None = None) -> bytes:
    """Encode one event. Its data is JSON, so it is one line whatever texts are in it."""
    id_line = b"" if event_id is None else b"id: %d\n" % event_id
    return id_line + b"event: %s\ndata: %s\n\n" % (event.encode(), encode(data))


class EventStream(Response):
    """A response that streams until it is over, the reader leaves or is too slow, or loses permission."""

    def __init__(self, source: StreamSource, reader: EventReader) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, MEDIA_TYPE)
        del self.headers["content-length"]
        self._source = source
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streaming = asyncio.ensure_future(self._stream(send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((streaming, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (streaming, leaving):
                task.cancel()
            results = await asyncio.gather(streaming, leaving, return_exceptions=True)
            await self._source.reader.__aexit__(None, None, None)
        failed = results[0]
        if isinstance(failed, Exception) and not isinstance(failed, ClientDisconnect):
            raise failed

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncGenerator[bytes]:
        source, heartbeat = self._source, self._source.heartbeat_seconds
        yield b"retry: %d\n\n" % RETRY_MS
        next_check, page = monotonic() + heartbeat, list[LiveEvent | LiveOutput]()
        while True:
            if chunk := b"".join(map(self._encode, page)):
                yield chunk
            end_data = await source.find_end([item for item in page if isinstance(item, LiveEvent)])
            if end_data is not None:
                yield encode_message("end", end_data)
                return
            if monotonic() >= next_check:
                if not await source.check_access():
                    yield encode_message("end", {"reason": "not_allowed"})
                    return
                yield _HEARTBEAT_MESSAGE
                next_check = monotonic() + heartbeat
            page = []
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_check - monotonic())):
                    page = await anext(self._reader, None)
            if page is None:
                yield encode_message("end", {"reason": "stopping"})
                return

    def _encode(self, item: LiveEvent | LiveOutput) -> bytes:
        """Encode an event, or an output: that has no id, so a reader that comes back continues after the last event."""
        if isinstance(item, LiveEvent):
            return self._source.encode(item)
        return encode_message(item.type, build_response(OutputResponse, item))


async def open_event_stream(request: Request, source: StreamSource) -> EventStream:
    """Open a stream. Its reader is reserved now, so that a full hub is an error response and not a broken stream."""
    stream = EventStream(source, await source.reader.__aenter__())
    request.app.state.concurrency_limiter.finish(request.scope)
    return stream


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
