"""Connection limits, before there is a request and while its response is read.

uvicorn waits for the head of a request as long as it takes. Here a connection on which no request is under way has so
many seconds to send the whole head of one, however its bytes trickle in; so has one whose request was answered before
its body had come. A client that does not read its response is disconnected. When there are as many connections as
there may be, the one that has been idle longest makes room.
"""

import asyncio
from typing import Any, cast
from urllib.parse import unquote

import h11
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.protocols.http.h11_impl import H11Protocol

from .plain_http import PlainExchange, PlainRequest, parse_plain_request

HEAD_SECONDS = 10.0
#: How long a client may take to make room for more of a response.
SEND_SECONDS = 30.0
#: Below the 1,024 files that a process may usually have open.
MAX_CONNECTIONS = 800
#: In the scope of a request whose whole body came with its head, so that there is nothing to wait for.
WHOLE_BODY = "interlock.whole_body"


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
        self._expect_head()
        connections = cast(set[object], self.connections)
        if len(connections) > MAX_CONNECTIONS:
            idle = [each for each in connections if isinstance(each, BoundedHttpProtocol) and each.is_idle]
            min(idle, key=lambda each: each.idle_since).transport.abort()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if isinstance(cycle, PlainExchange) and cycle.is_plain:
            cycle.early += data
            self.flow.pause_reading()
            return
        request = parse_plain_request(data) if self._expects_request() else None
        if request is None:
            super().data_received(data)
        else:
            self._begin_plain(request, data)
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
        super().on_response_complete()
        cycle = self.cycle
        if isinstance(cycle, PlainExchange) and cycle.early and not self.transport.is_closing():
            self.data_received(cycle.early)

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

    def _expects_request(self) -> bool:
        """Return True if what comes now is the begin of a request, and h11 has nothing to do."""
        return self.is_idle and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _begin_plain(self, request: PlainRequest, data: bytes) -> None:
        """Handle a request as `handle_events` handles one that h11 has read."""
        self._unset_keepalive_if_required()
        self._head_timer = _cancel(self._head_timer)
        raw_path, _, query_string = request.target.partition(b"?")
        self.headers = request.headers
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": request.method.decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + unquote(raw_path.decode("ascii")),
            "raw_path": self.root_path.encode("ascii") + raw_path,
            "query_string": query_string,
            "headers": request.headers,
            "state": self.app_state.copy(),
            WHOLE_BODY: True,
        }
        self.scope = cast(HTTPScope, scope)
        self.cycle = PlainExchange(
            data=data,
            body=request.body,
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        app = cast(ASGI3Application, self.app)  # pyright: ignore[reportUnknownMemberType]  # uvicorn leaves it open
        task = self.loop.create_task(self.cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _expect_head(self) -> None:
        """Disconnect unless a whole head comes in time. While nothing at all comes, uvicorn closes earlier."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_at(self.idle_since + HEAD_SECONDS, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
