"""Connection limits, before there is a request.

uvicorn waits for the head of a request as long as it takes. Here a connection on which no request is under way has so
many seconds to send the whole head of one, however its bytes trickle in; so has one whose request was answered before
its body had come. When there are as many connections as there may be, the one that has been idle longest makes room.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
#: Below the 1,024 files that a process may usually have open.
MAX_CONNECTIONS = 800


class BoundedHttpProtocol(H11Protocol):
    """The protocol for uvicorn: `Config(..., http=BoundedHttpProtocol)`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle_timer: asyncio.TimerHandle | None = None
        #: Since when no request is under way.
        self.idle_since = self.loop.time()

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_idle_timer()
        connections = cast(set[object], self.connections)
        if len(connections) > MAX_CONNECTIONS:
            idle = [each for each in connections if isinstance(each, BoundedHttpProtocol) and each.is_idle]
            min(idle, key=lambda each: each.idle_since).transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        if not self.is_idle:
            self._cancel_idle_timer()

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._start_idle_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_idle_timer()
        super().connection_lost(exc)

    def _start_idle_timer(self) -> None:
        self._cancel_idle_timer()
        self.idle_since = self.loop.time()
        self._idle_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
