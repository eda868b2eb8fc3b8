"""What is plain is read and written as h11 reads and writes it, and everything else is left to h11."""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from interlock.server.rest.connections import BoundedHttpProtocol
from interlock.server.rest.plain_http import encode_plain_response, parse_plain_request

from .test_connections import RecordedTransport

_POST = b"POST /v1/runs?a=b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_GET = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ik_1\r\n\r\n"

_names = st.sampled_from(
    ["Host", "host", "Content-Length", "Connection", "Transfer-Encoding", "Expect", "X-A", "X B", ""]
)
_values = st.one_of(
    st.sampled_from(["x", "2", "0", "02", "+2", "2, 2", "close", "chunked", "100-continue", "", " 2", "2 "]),
    st.text(st.characters(max_codepoint=255), max_size=4),
)
_lines = st.lists(st.tuples(_names, st.sampled_from([": ", ":", " : ", ":\t"]), _values), max_size=5)
_starts = st.sampled_from(["GET", "POST", "HEAD", "get", "CONNECT", "PUT"])
_targets = st.one_of(st.just("/"), st.text(st.characters(max_codepoint=255), max_size=5))
_versions = st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "http/1.1"])
_ends = st.sampled_from(["\r\n", "\r\n", "\r\n", "\n"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests, many of which are wrong in some way."""
    end = draw(_ends)
    head = f"{draw(_starts)} {draw(_targets)} {draw(_versions)}{end}"
    lines = [("Host", ": ", "x")] * draw(st.integers(0, 2)) + draw(_lines)
    body = draw(st.sampled_from(["", "{}", "{}GET / HTTP/1.1\r\n"]))
    return (head + "".join(f"{name}{colon}{value}{end}" for name, colon, value in lines) + end + body).encode("latin-1")


def read_by_h11(data: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes] | None:
    """Return what h11 reads where it is one whole request, after which the connection stays open."""
    connection, body, request = h11.Connection(h11.SERVER), b"", None
    connection.receive_data(data)
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return None
    except h11.RemoteProtocolError:
        return None
    if request is None or connection.trailing_data[0] or connection.their_state is not h11.DONE:
        return None
    return request.method, request.target, list(request.headers), body


@given(st.one_of(requests(), st.binary(max_size=40).map(lambda junk: _POST[:-2] + junk)))
def test_plain_request_is_what_h11_reads(data: bytes) -> None:
    plain = parse_plain_request(data)

    assert plain is None or tuple(plain) == read_by_h11(data)


@pytest.mark.parametrize("data", [_GET, _POST])
def test_common_requests_are_plain(data: bytes) -> None:
    assert parse_plain_request(data) is not None


@pytest.mark.parametrize(
    "data",
    [
        _POST + b"x",
        _POST[:-1],
        _GET.replace(b"Host", b"Connection: close\r\nHost"),
        _GET.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        _GET.replace(b"Host", b"Expect: 100-continue\r\nHost"),
        _GET.replace(b"Host: x", b"Host: x\r\nHost: x"),
        _GET.replace(b"Host: x\r\n", b""),
        _GET.replace(b"HTTP/1.1", b"HTTP/1.0"),
        _GET.replace(b"\r\n", b"\n"),
        _GET.replace(b"Host: x", b"Host: x\r\n folded"),
        _POST.replace(b"Length: 2", b"Length: 2\r\nContent-Length: 2"),
        _POST.replace(b"Length: 2", b"Length: +2"),
    ],
)
def test_anything_else_is_left_to_h11(data: bytes) -> None:
    assert parse_plain_request(data) is None


_text = st.text(st.characters(max_codepoint=255), max_size=6).map(lambda text: text.encode("latin-1"))
_headers = st.lists(
    st.tuples(st.sampled_from([b"x-a", b"location", b"X-B", b"connection", b"content-length", b""]), _text)
)


@given(st.sampled_from([200, 201, 204, 304, 404, 503]), _headers, st.binary(max_size=5))
def test_plain_response_is_what_h11_writes(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body))]

    plain = encode_plain_response(status, headers, body)

    if plain is not None:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(_GET)
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            pass
        reason = STATUS_PHRASES[status]
        events = (h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=body))
        assert plain == b"".join(connection.send(event) or b"" for event in (*events, h11.EndOfMessage()))


@pytest.mark.parametrize("value", [b"a\r\nSet-Cookie: b=c", b"a\nb", b"a\0b", b"a\rb"])
def test_response_header_cannot_be_split(value: bytes) -> None:
    assert encode_plain_response(200, [(b"content-length", b"0"), (b"location", value)], b"") is None


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, in the way that the path says."""
    body = (await receive())["body"] + scope["path"].encode()
    length = [] if scope["path"] == "/stream" else [(b"content-length", b"%d" % len(body))]
    status = 204 if scope["path"] == "/none" else 200
    headers = [(b"connection", b"close")] if scope["path"] == "/close" else []
    await send(
        {"type": "http.response.start", "status": status, "headers": headers if status == 204 else headers + length}
    )
    if scope["path"] == "/parts":
        await send({"type": "http.response.body", "body": body[:2], "more_body": True})
        body = body[2:]
    await send({"type": "http.response.body", "body": b"" if status == 204 else body})


async def talk(protocol_type: Callable[..., H11Protocol], pieces: list[bytes]) -> tuple[bytes, bool]:
    """Return what a connection answers to these bytes, and whether it closes."""
    config = uvicorn.Config(_answer, log_level="error", access_log=False, lifespan="off", ws="none")
    state, transport = ServerState(), RecordedTransport()
    protocol: Any = protocol_type(config, state, {})
    protocol.connection_made(transport)
    for piece in pieces:
        protocol.data_received(piece)
    while state.tasks:
        await asyncio.gather(*state.tasks)
    protocol.connection_lost(None)
    return b"".join(transport.writes), transport.is_closed


def _request(path: str, body: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


@pytest.mark.parametrize(
    "pieces",
    [
        [_request("/a", b"one")],
        [_request("/a", b"one"), _request("/b", b"two"), _request("/c")],
        [_request("/a") + _request("/b") + _request("/c")],
        [_request("/a"), _request("/b")[:-5], _request("/b")[-5:], _request("/c")],
        [_request("/stream"), _request("/a", b"one")],
        [_request("/parts", b"one"), _request("/stream"), _request("/a")],
        [_request("/none"), _request("/a")],
        [_request("/close"), _request("/a")],
        [_request("/a").replace(b"Host", b"Connection: close\r\nHost"), _request("/b")],
    ],
)
async def test_connection_answers_as_that_of_uvicorn(pieces: list[bytes]) -> None:
    assert await talk(BoundedHttpProtocol, pieces) == await talk(H11Protocol, pieces)


async def test_invalid_bytes_after_a_plain_request_are_refused() -> None:
    answered, is_closed = await talk(BoundedHttpProtocol, [_request("/a"), b"nonsense\r\n\r\n"])

    assert [line for line in answered.split(b"\r\n") if b"HTTP/1.1" in line] == [
        b"HTTP/1.1 200 OK",
        b"/aHTTP/1.1 400 Bad Request",
    ]
    assert is_closed
