"""Plain exchanges of HTTP/1.1: a request that comes in one piece and has nothing special, and a response of a known
length.

They are most of what a server does, and need none of the states that h11 keeps for a connection. What is plain is a
small part of what h11 accepts, and is read as h11 reads it. Everything else is h11's matter: any other request, and the
response to a plain one that is not plain itself, for which h11 reads the request, too.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

_match_head = re.compile(
    rb"(DELETE|GET|PATCH|POST|PUT) (/[!-~]*) HTTP/1\.1\r\n((?:[A-Za-z][-0-9A-Za-z]*: [!-~]+(?: [!-~]+)*\r\n)+)\r\n"
).match
_find_headers = re.compile(rb"([^:]+): ([^\r]+)\r\n").findall
#: Of a request: what is more than a head and a body of a known length.
_SPECIAL_HEADERS = frozenset((b"connection", b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"))
_is_length = re.compile(rb"[0-9]{1,9}").fullmatch

_are_header_lines = re.compile(rb"(?:[-0-9a-z]+: [ -~]*\r\n)+").fullmatch
_FRAMING_HEADERS = frozenset((b"connection", b"transfer-encoding"))
_MIN_STATUS, _BODILESS_STATUSES = 200, frozenset((204, 304))


class PlainRequest(NamedTuple):
    """A request that came in one piece. Names of headers are in lower case."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def parse_plain_request(data: bytes) -> PlainRequest | None:
    """Return the request that these bytes are, no more and no less; None where that is not plain."""
    found = _match_head(data)
    if found is None:
        return None
    headers = [(name.lower(), value) for name, value in cast(list[tuple[bytes, bytes]], _find_headers(found[3]))]
    names = [name for name, _ in headers]
    body, length = data[found.end() :], b"0"
    if b"content-length" in names:
        length = headers[names.index(b"content-length")][1]
    if (
        names.count(b"host") != 1
        or names.count(b"content-length") > 1
        or not _SPECIAL_HEADERS.isdisjoint(names)
        or _is_length(length) is None
        or int(length) != len(body)
    ):
        return None
    return PlainRequest(found[1], found[2], headers, body)


def encode_plain_response(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes | None:
    """Return a response as it is sent; None where it is not plain, or h11 has to say what is wrong with it."""
    headers = list(headers)
    names = [name for name, _ in headers]
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if (
        names.count(b"content-length") != 1
        or headers[names.index(b"content-length")][1] != b"%d" % len(body)
        or not _FRAMING_HEADERS.isdisjoint(names)
        or status < _MIN_STATUS
        or status in _BODILESS_STATUSES
        or lines.count(b"\n") != len(headers)
        or _are_header_lines(lines) is None
    ):
        return None
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, STATUS_PHRASES[status], lines, body)


class PlainExchange(RequestResponseCycle):
    """The exchange of a plain request. h11 has to be idle."""

    def __init__(self, *, data: bytes, body: bytes, **options: Any) -> None:
        """`data` is what was received; the other options are those of uvicorn."""
        super().__init__(**options)
        #: What h11 has not read; empty once it has.
        self._unread = data
        #: What was received after the request: the next one.
        self.early = b""
        self._start: Any = None
        self.body = bytearray(body)
        self.more_body = False
        self.message_event.set()

    @property
    def is_plain(self) -> bool:
        """True until the response is complete, or h11 sends it."""
        return bool(self._unread) and not self.response_complete

    async def send(self, message: Any) -> None:
        """Send a message. The start of a response waits for its body."""
        if not self._unread or self.disconnected:
            await super().send(message)
        elif message["type"] == "http.response.start" and not self.response_started:
            self._start, self.response_started = message, True
        elif not self._send_plain(message):
            await self._send_by_h11(message)

    def _send_plain(self, message: Any) -> bool:
        if self._start is None or message["type"] != "http.response.body" or message.get("more_body", False):
            return False
        headers = [*self.default_headers, *self._start.get("headers", ())]
        response = encode_plain_response(self._start["status"], headers, message.get("body", b""))
        if response is None or self.flow.write_paused or self.access_log:
            return False
        self.response_complete = True
        self.message_event.set()
        self.transport.write(response)
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True

    async def _send_by_h11(self, message: Any) -> None:
        """Let h11 read the request, and send the response."""
        self.conn.receive_data(self._unread + self.early)
        self._unread = self.early = b""
        while not isinstance(self.conn.next_event(), h11.EndOfMessage):
            pass
        if self._start is not None:
            self.response_started = False
            await super().send(self._start)
        await super().send(message)
