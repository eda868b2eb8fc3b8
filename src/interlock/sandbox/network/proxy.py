"""The proxy of one command: an HTTP/1.1 forward proxy with CONNECT, which connects only where egress rules open it.

The command has a network of its own that holds nothing but this proxy. Its listening socket is made in that network
and served here, so no other process of the host can use it.

- A request names its host as an address of a URL or of CONNECT. Both are decided on before a name is resolved.
- In a tunnel, the name in the TLS ClientHello must be the name of the CONNECT. HTTP without TLS is read request by
  request; other bytes pass only on ports that a rule names itself.
- Where rules are about methods or add a credential, the tunnel ends here: the command speaks TLS with this proxy, which
  speaks TLS with the host and verifies its certificate.
- A redirect is an answer like any other: the command's next request is decided on again.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Literal, TypeAlias

import h11
import msgspec

from ...domain.egress import (
    WEB_PORTS,
    EgressConnection,
    EgressDecision,
    EgressReport,
    EgressRule,
    EgressRules,
    parse_host_and_port,
)
from ...domain.hosts import find_host_problem, parse_address
from .certificates import MISSING, can_make_certificates, get_authority
from .channel import CHUNK_BYTES, Channel, SocketChannel, TlsChannel, move_bytes
from .client_hello import MAX_HELLO_BYTES, ClientHello, MalformedHelloError, is_tls, parse_client_hello
from .upstream import (
    RefusedHostError,
    Resolver,
    UnreachableHostError,
    open_tunnel,
    open_upstream,
    resolve_with_system,
)

#: Rows of the log; connections beyond are counted.
MAX_ROWS = 100
MAX_CONNECTIONS = 128
MAX_BYTES = 8 << 30
_MAX_HEAD_BYTES, _MAX_METHOD_CHARS = 64 * 1024, 20
#: A tunnel that has carried so much in one direction is worth a pipe.
_BULK_BYTES = 1 << 20
#: For a client to send the head of its request, and for a silent connection.
_HEAD_SECONDS, _IDLE_SECONDS = 30.0, 300.0
_BACKLOG_PAUSE_SECONDS, _LINGER_SECONDS = 0.05, 1.0
_BAD_REQUEST, _FORBIDDEN, _TOO_LARGE, _BAD_GATEWAY = 400, 403, 431, 502
#: Of one connection only, or for a proxy alone (RFC 9110, 7.6.1).
_HOP_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"host")
)
_PROXY_HEADER = b"proxy-"
_VIA = b"1.1 interlock-egress"
_HTTP_URL = re.compile(r"http://([^/?#]*)([^#]*)", re.IGNORECASE)
_HTTP_START = re.compile(rb"[A-Z]{3,10} [!-~]{1,65536} HTTP/1\.[01]\r?\n")
#: What may become one, when there is more of it.
_MAYBE_HTTP = re.compile(rb"[A-Z]{1,10}(?: [!-~]*(?: [!-~]*)?)?\r?")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_Headers: TypeAlias = list[tuple[bytes, bytes]]


class _LimitError(Exception):
    """A limit of the proxy was reached."""


class EgressProxy:
    """Serves one listening socket until it is closed."""

    def __init__(
        self,
        rules: EgressRules,
        *,
        get_secret: Callable[[str], str | None] = os.environ.get,
        resolve: Resolver = resolve_with_system,
    ) -> None:
        self._rules = rules
        self._get_secret = get_secret
        self._resolve = resolve
        self._loop = asyncio.get_running_loop()
        self._rows: list[EgressConnection] = []
        self._omitted = 0
        self._bytes_left = MAX_BYTES
        #: How hosts are verified whose requests are read.
        self._trust: ssl.SSLContext | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def serve_from_thread(self, listener: socket.socket) -> None:
        """Serve this socket from now on. Can be called by any thread."""
        self._loop.call_soon_threadsafe(self.serve, listener)

    def serve(self, listener: socket.socket) -> None:
        """Serve this listening socket from now on."""
        if self._is_closed:
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        self._accepting = self._loop.create_task(self._accept_all(listener), name="egress-proxy")

    def report(self) -> EgressReport:
        """Return the connections so far."""
        return EgressReport(tuple(self._rows), self._omitted)

    async def close(self) -> EgressReport:
        """End all connections, and return what there was."""
        self._is_closed = True
        tasks = [*self._serving, *([self._accepting] if self._accepting is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._listener is not None:
            self._listener.close()
        return self.report()

    async def _accept_all(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listener)
            except OSError:  # too many open files, or a client that is gone already
                await asyncio.sleep(_BACKLOG_PAUSE_SECONDS)
                continue
            if len(self._serving) >= MAX_CONNECTIONS:
                accepted.close()
                self._omitted += 1
                continue
            task = self._loop.create_task(self._serve_client(accepted))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve_client(self, accepted: socket.socket) -> None:
        with accepted:
            accepted.setblocking(False)
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError, TimeoutError, h11.ProtocolError, _LimitError):
                await self._serve_requests(SocketChannel(accepted), None)
            # A client that still sends would lose an answer when the connection is reset.
            with suppress(OSError, TimeoutError):
                accepted.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await self._loop.sock_recv(accepted, CHUNK_BYTES):
                        pass

    async def _serve_requests(self, client: Channel, tunnel: "_Tunnel | None", received: bytes = b"") -> None:
        """Serve the requests of a client, or those inside of a tunnel, until one of them ends the connection."""
        http = h11.Connection(h11.SERVER, _MAX_HEAD_BYTES)
        if received:
            http.receive_data(received)
        try:
            while isinstance(request := await _next_event(http, client, _HEAD_SECONDS), h11.Request):
                if sum(len(name) + len(value) for name, value in request.headers) > _MAX_HEAD_BYTES:
                    await _answer(client, http, _TOO_LARGE, "The headers are too large.")
                    return
                if request.method == b"CONNECT" and tunnel is None:
                    await self._serve_connect(client, http, request)
                    return
                await self._forward(client, http, request, tunnel)
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    return
                http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _answer(client, http, error.error_status_hint, f"Not a valid request: {error}.")

    # Requests that the proxy reads.

    async def _forward(
        self, client: Channel, http: h11.Connection, request: h11.Request, tunnel: "_Tunnel | None"
    ) -> None:
        target = _parse_target(request, tunnel)
        if isinstance(target, str):
            await _answer(client, http, _BAD_REQUEST, target)
            return
        method = request.method.decode("ascii", "replace")
        decision = self._rules.decide(target.host, target.port, method)
        row = self._record(target.host, target.port, method, decision)
        if row.outcome != "allowed":
            await _answer(client, http, _FORBIDDEN, row.reason)
            return
        try:
            is_tls = tunnel is not None and tunnel.is_tls
            headers, secret = self._build_request_headers(request, target, decision.credential, is_tls=is_tls)
            upstream = await self._open_for_request(target, tunnel)
            with closing(upstream.channel):
                await self._exchange(client, http, request, upstream, _Exchange(target, headers, secret, row))
        except RefusedHostError as refused:
            _mark(row, "refused", str(refused))
            await _answer(client, http, _FORBIDDEN, row.reason)
        except (UnreachableHostError, OSError, TimeoutError, h11.ProtocolError) as error:
            if not isinstance(error, UnreachableHostError):
                error = UnreachableHostError(f"{target.host}:{target.port} ended the connection.")
            if http.our_state is h11.SEND_RESPONSE:
                _mark(row, "failed", str(error))
                await _answer(client, http, _BAD_GATEWAY, row.reason)

    async def _open_for_request(self, target: "_Target", tunnel: "_Tunnel | None") -> "_OpenUpstream":
        if tunnel is None:
            upstream = await open_upstream(target.host, target.port, self._rules, self._resolve)
            return _OpenUpstream(upstream.channel, upstream.via.authorization if upstream.via else None)
        channel = await open_tunnel(target.host, target.port, self._rules, self._resolve)
        if not tunnel.is_tls:
            return _OpenUpstream(channel)
        if self._trust is None:
            self._trust = await asyncio.to_thread(ssl.create_default_context)
            self._trust.set_alpn_protocols(["http/1.1"])
        tls = TlsChannel(channel, self._trust, server_hostname=target.host)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                await tls.handshake()
        except ssl.SSLCertVerificationError as error:
            tls.close()
            reason = f"The certificate of {target.host}:{target.port} is not valid: {error.verify_message}"
            raise RefusedHostError(reason) from None
        except BaseException:
            tls.close()
            raise
        return _OpenUpstream(tls)

    def _build_request_headers(
        self, request: h11.Request, target: "_Target", rule: EgressRule | None, *, is_tls: bool
    ) -> tuple[_Headers, bytes]:
        """Return the headers to send, and the secret in them."""
        headers: _Headers = [(b"Host", target.authority.encode())]
        listed = _list_end_to_end(request.headers)
        if any(name == b"via" and _VIA in value for name, value in listed):
            raise RefusedHostError("The request went through this proxy before: it is in a loop.")
        if any(name == b"transfer-encoding" for name, _ in request.headers):
            if any(name == b"content-length" for name, _ in listed):
                raise RefusedHostError("A request has a length or is chunked, not both.")
            headers.append((b"Transfer-Encoding", b"chunked"))
        headers += [*listed, (b"Via", _VIA), (b"Connection", b"close")]
        if rule is None:
            return headers, b""
        if not is_tls:
            raise RefusedHostError(f"The credential {rule.credential} is sent with TLS only. Use https.")
        secret = self._get_secret(rule.credential)
        if not secret or not secret.isascii() or not secret.isprintable():
            raise RefusedHostError(f"The credential {rule.credential} is not set, or cannot be a header.")
        name, _, value = rule.header.partition(": ")
        # What is compressed cannot be searched for the credential.
        dropped = (name.lower().encode(), b"accept-encoding")
        kept = [header for header in headers if header[0].lower() not in dropped]
        kept += [(name.encode(), value.replace("{}", secret).encode()), (b"Accept-Encoding", b"identity")]
        return kept, secret.encode()

    async def _exchange(
        self,
        client: Channel,
        http: h11.Connection,
        request: h11.Request,
        upstream: "_OpenUpstream",
        exchange: "_Exchange",
    ) -> None:
        """Send the request to its host and the answer to the client, both as they come."""
        their = h11.Connection(h11.CLIENT, _MAX_HEAD_BYTES)
        counted = _CountedChannel(upstream.channel, exchange.row, self._spend)
        target, headers = exchange.target.path, exchange.headers
        if upstream.proxy_authorization is not None:
            target = f"http://{exchange.target.authority}{target}"
            if upstream.proxy_authorization:
                headers = [*headers, (b"Proxy-Authorization", upstream.proxy_authorization.encode())]
        head = h11.Request(method=request.method, target=target.encode(), headers=headers)
        await counted.send(their.send(head) or b"")
        sending = self._loop.create_task(_send_body(client, http, counted, their))
        answering = self._loop.create_task(_pass_answer(client, http, counted, their, _SecretFilter(exchange.secret)))
        try:
            await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not answering.done():
                sending.result()  # raises when the client is gone
                await asyncio.wait((answering,))
            answering.result()
        finally:
            await _cancel(sending, answering)

    # Tunnels.

    async def _serve_connect(self, client: Channel, http: h11.Connection, request: h11.Request) -> None:
        target = _parse_authority(request.target.decode("ascii", "replace"), 0)
        if isinstance(target, str) or not target.port:
            await _answer(client, http, _BAD_REQUEST, target if isinstance(target, str) else "CONNECT names a port.")
            return
        if not isinstance(await _next_event(http, client, _HEAD_SECONDS), h11.EndOfMessage):
            await _answer(client, http, _BAD_REQUEST, "CONNECT has no body.")
            return
        decision = self._rules.decide(target.host, target.port)
        row = self._record(target.host, target.port, "CONNECT", decision)
        if row.outcome == "allowed" and decision.inspect and not can_make_certificates():
            _mark(row, "refused", MISSING)
        upstream: Channel | None = None
        if row.outcome == "allowed" and not decision.inspect:
            try:
                upstream = await open_tunnel(target.host, target.port, self._rules, self._resolve)
            except RefusedHostError as refused:
                _mark(row, "refused", str(refused))
            except UnreachableHostError as error:
                _mark(row, "failed", str(error))
        if row.outcome != "allowed":
            await _answer(client, http, _FORBIDDEN if row.outcome == "refused" else _BAD_GATEWAY, row.reason)
            return
        try:
            response = h11.Response(status_code=200, headers=[], reason=b"Connection established")
            await client.send(http.send(response) or b"")
            await self._serve_tunnel(client, http.trailing_data[0], target, row, upstream)
        finally:
            if upstream is not None:
                upstream.close()

    async def _serve_tunnel(
        self, client: Channel, received: bytes, target: "_Target", row: EgressConnection, upstream: Channel | None
    ) -> None:
        """Look at the first bytes of the client, then pass on everything, or read it request by request."""
        is_web = target.port in WEB_PORTS
        async with asyncio.timeout(_HEAD_SECONDS if is_web else _IDLE_SECONDS) as idle:
            relay = _Relay(row, self._spend, idle)
            # Of some protocols the server speaks first.
            back = (
                None
                if upstream is None or is_web
                else self._loop.create_task(relay.run(upstream, client, "received_bytes"))
            )
            try:
                received, problem = await _read_start(client, received, target)
                if problem:
                    _mark(row, "refused", problem)
                    return
                if upstream is not None and not _HTTP_START.match(received):
                    await upstream.send(received)
                    relay.count("sent_bytes", len(received))
                    there = self._loop.create_task(relay.run(client, upstream, "sent_bytes"))
                    back = back or self._loop.create_task(relay.run(upstream, client, "received_bytes"))
                    try:
                        await asyncio.gather(there, back)
                    finally:
                        await _cancel(there)
                    return
                idle.reschedule(None)
            finally:
                if back is not None:
                    await _cancel(back)
            await self._serve_inside(client, received, target)

    async def _serve_inside(self, client: Channel, received: bytes, target: "_Target") -> None:
        """Serve the requests in a tunnel."""
        if not is_tls(received):
            await self._serve_requests(client, _Tunnel(target, is_tls=False), received)
            return
        context = await asyncio.to_thread(get_authority().server_context, target.host)
        tls = TlsChannel(client, context, received=received)
        async with asyncio.timeout(_HEAD_SECONDS):
            await tls.handshake()
        await self._serve_requests(tls, _Tunnel(msgspec.structs.replace(target, scheme_port=443), is_tls=True))

    # The log.

    def _record(self, host: str, port: int, method: str, decision: EgressDecision) -> EgressConnection:
        method = method[:_MAX_METHOD_CHARS]
        is_open = decision.outcome == "allow"
        row = EgressConnection(
            host=host,
            port=port,
            method=method,
            outcome="allowed" if is_open else "refused",
            rule=", ".join(decision.rule_ids),
            reason="" if is_open else _describe_refusal(host, port, method, decision),
            can_ask=decision.outcome in ("ask", "unnamed"),
        )
        if len(self._rows) < MAX_ROWS:
            self._rows.append(row)
        else:
            self._omitted += 1
        return row

    def _spend(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise _LimitError(f"more than {MAX_BYTES >> 30} GiB were transferred")


class _Target(msgspec.Struct, frozen=True):
    """Where a request goes."""

    host: str
    port: int
    path: str = "/"
    scheme_port: int = 80

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == self.scheme_port else f"{host}:{self.port}"


class _Tunnel(msgspec.Struct, frozen=True):
    """A tunnel whose requests are read."""

    target: _Target
    is_tls: bool


class _OpenUpstream(msgspec.Struct, frozen=True):
    channel: Channel
    #: The other end is a proxy. Empty: one that needs no credentials.
    proxy_authorization: str | None = None


class _Exchange(msgspec.Struct, frozen=True):
    """A request on its way."""

    target: _Target
    headers: _Headers
    secret: bytes
    row: EgressConnection


class _CountedChannel:
    """A channel whose bytes are counted in a row of the log."""

    def __init__(self, inner: Channel, row: EgressConnection, spend: Callable[[int], None]) -> None:
        self._inner = inner
        self._row = row
        self._spend = spend

    async def receive(self) -> bytes:
        data = await self._inner.receive()
        self._row.received_bytes += len(data)
        self._spend(len(data))
        return data

    async def send(self, data: bytes) -> None:
        self._row.sent_bytes += len(data)
        self._spend(len(data))
        await self._inner.send(data)

    def close(self) -> None:
        self._inner.close()


class _Relay:
    """Passes bytes on, in both directions of a tunnel, until both are at their end or silent for too long."""

    def __init__(self, row: EgressConnection, spend: Callable[[int], None], idle: asyncio.Timeout) -> None:
        self._row = row
        self._spend = spend
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._rescheduled_at = float("-inf")

    def count(self, field: Literal["sent_bytes", "received_bytes"], size: int) -> None:
        self._spend(size)
        if field == "sent_bytes":
            self._row.sent_bytes += size
        else:
            self._row.received_bytes += size
        now = self._loop.time()
        if now > self._rescheduled_at + 1:
            self._rescheduled_at = now
            self._idle.reschedule(now + _IDLE_SECONDS)

    async def run(self, source: Channel, target: Channel, field: Literal["sent_bytes", "received_bytes"]) -> None:
        moved = 0
        while data := await source.receive():
            self.count(field, len(data))
            await target.send(data)
            await asyncio.sleep(0)  # what is always ready would keep all others waiting
            moved += len(data)
            if moved > _BULK_BYTES and isinstance(source, SocketChannel) and isinstance(target, SocketChannel):
                await move_bytes(source.socket, target.socket, partial(self.count, field))
                break
        if isinstance(target, SocketChannel):
            with suppress(OSError):
                target.socket.shutdown(socket.SHUT_WR)


class _SecretFilter:
    """Keeps a credential out of an answer: its letters are replaced, so that no length changes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""

    def clean(self, data: bytes) -> bytes:
        return data.replace(self._secret, b"*" * len(self._secret)) if self._secret else data

    def feed(self, data: bytes) -> bytes:
        if not self._secret:
            return data
        data = self.clean(self._held + data)
        # The end may be the beginning of it.
        held = next((size for size in range(len(self._secret) - 1, 0, -1) if data.endswith(self._secret[:size])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


async def _cancel(*tasks: "asyncio.Task[None]") -> None:
    """Cancel tasks, and wait for their ends. What they raise is of no interest any more."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _next_event(http: h11.Connection, channel: Channel, seconds: float) -> object:
    """Return the next event of a peer, which has so much time for it."""
    async with asyncio.timeout(seconds):
        while (event := http.next_event()) is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                proceed = h11.InformationalResponse(status_code=100, headers=[])
                await channel.send(http.send(proceed) or b"")
            http.receive_data(await channel.receive())
    return event


async def _send_body(client: Channel, http: h11.Connection, upstream: Channel, their: h11.Connection) -> None:
    """Send the body of a request. Should the host not want all of it, its answer says why."""
    while True:
        event = await _next_event(http, client, _IDLE_SECONDS)
        if not isinstance(event, h11.Data | h11.EndOfMessage):
            raise h11.RemoteProtocolError("the request ended early")
        data = their.send(event if isinstance(event, h11.Data) else h11.EndOfMessage())
        try:
            await upstream.send(data or b"")
        except OSError:
            return
        if isinstance(event, h11.EndOfMessage):
            return


async def _pass_answer(
    client: Channel, http: h11.Connection, upstream: Channel, their: h11.Connection, secret: _SecretFilter
) -> None:
    while True:
        event = await _next_event(their, upstream, _IDLE_SECONDS)
        match event:
            case h11.InformationalResponse():
                continue
            case h11.Response():
                headers = [(name, secret.clean(value)) for name, value in _list_end_to_end(event.headers)]
                answer = h11.Response(status_code=event.status_code, headers=headers, reason=secret.clean(event.reason))
                await client.send(http.send(answer) or b"")
            case h11.Data():
                if data := secret.feed(bytes(event.data)):
                    await client.send(http.send(h11.Data(data=data)) or b"")
            case h11.EndOfMessage():
                if data := secret.end():
                    await client.send(http.send(h11.Data(data=data)) or b"")
                await client.send(http.send(h11.EndOfMessage()) or b"")
                return
            case _:
                raise h11.RemoteProtocolError("the answer ended early")


async def _answer(client: Channel, http: h11.Connection, status: int, text: str) -> None:
    """Answer in the place of the host."""
    body = f"interlock: {text}\n".encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    data = http.send(h11.Response(status_code=status, headers=headers)) or b""
    data += http.send(h11.Data(data=body)) or b""
    await client.send(data + (http.send(h11.EndOfMessage()) or b""))


async def _read_start(client: Channel, received: bytes, target: _Target) -> tuple[bytes, str]:
    """Read what a client sends first in a tunnel. Return it, and why it may not pass; empty: it may."""
    while True:
        if is_tls(received):
            try:
                hello = parse_client_hello(received)
            except MalformedHelloError:
                return received, "The tunnel does not begin with a valid TLS ClientHello."
            if hello is not None:
                return received, _find_name_problem(hello, target.host)
        elif received and not _MAYBE_HTTP.fullmatch(received):
            if _HTTP_START.match(received) or target.port not in WEB_PORTS:
                return received, ""
            return received, "A tunnel to port 80 or 443 carries TLS, or HTTP/1.1 requests."
        if len(received) > MAX_HELLO_BYTES:
            return received, "The tunnel does not begin with TLS or HTTP."
        data = await client.receive()
        if not data:
            return received, "The client ended the tunnel before it sent anything." if received else ""
        received += data


def _find_name_problem(hello: ClientHello, host: str) -> str:
    if hello.is_encrypted:
        return "The TLS ClientHello hides the name of its host (ECH)."
    name = hello.server_name.lower().rstrip(".")
    if name == host or (not name and parse_address(host) is not None):
        return ""
    return f"The TLS name {name[:100]!r} is not the host of the CONNECT."


def _parse_target(request: h11.Request, tunnel: _Tunnel | None) -> _Target | str:
    """Return where a request goes, or what is wrong with it."""
    text = request.target.decode("ascii", "replace")
    if tunnel is None:
        found = _HTTP_URL.fullmatch(text)
        if found is None:
            return "A request to a proxy names a whole http:// address, or is a CONNECT."
        target = _parse_authority(found[1], 80)
        path = found[2] if found[2].startswith("/") else f"/{found[2]}"
        return target if isinstance(target, str) else msgspec.structs.replace(target, path=path)
    if not text.startswith("/"):
        return "A request in a tunnel names a path."
    named = [value.decode("ascii", "replace") for name, value in request.headers if name == b"host"]
    host = _parse_authority(named[0], tunnel.target.scheme_port) if named else "A request names its host."
    if isinstance(host, str):
        return host
    if (host.host, host.port) != (tunnel.target.host, tunnel.target.port):
        return "The Host of a request in a tunnel is the host of the CONNECT."
    return msgspec.structs.replace(tunnel.target, path=text)


def _parse_authority(text: str, default_port: int) -> _Target | str:
    """Return the host and port of `host:port`, or what is wrong with it."""
    if not _AUTHORITY.fullmatch(text):
        return f"{text[:100]!r} is no host with a port. User names and passwords do not belong there."
    parsed = parse_host_and_port(text)
    if parsed is None or find_host_problem(parsed[0]):
        return f"{text[:100]!r} is no host: a name, or an address as it is usually written."
    return _Target(parsed[0], parsed[1] or default_port)


def _list_end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
    """Return the headers that are meant for the other end."""
    listed = [(name.lower(), value) for name, value in headers]
    dropped = {word.strip().lower() for name, value in listed if name == b"connection" for word in value.split(b",")}
    dropped -= {b"content-length", b"content-type", b"authorization"}
    return [
        (name, value)
        for name, value in listed
        if name not in _HOP_HEADERS and name not in dropped and not name.startswith(_PROXY_HEADER)
    ]


def _mark(row: EgressConnection, outcome: str, reason: str) -> None:
    row.outcome, row.reason = outcome, reason


def _describe_refusal(host: str, port: int, method: str, decision: EgressDecision) -> str:
    place = f"{host}:{port}"
    if decision.outcome == "deny":
        return f"{place} is denied by {', '.join(decision.rule_ids)}."
    if decision.outcome == "ask":
        return f"{place} requires approval by {', '.join(decision.rule_ids)}."
    return f"No egress rule allows {place if method == 'CONNECT' else f'{method} to {place}'}."
