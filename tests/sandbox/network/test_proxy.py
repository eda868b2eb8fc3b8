"""The proxy passes what a rule opens, and nothing else: no trick reaches a host that no rule names."""

import asyncio
import ssl
from collections.abc import Sequence

import pytest

from interlock.domain.egress import EgressRule
from interlock.sandbox.network import proxy as proxy_module
from interlock.sandbox.network.certificates import CertificateAuthority
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.sandbox.network.hosts import HELLO, HOST, Proxy, allow, proxying, serving
from tests.sandbox.network.test_client_hello import named, with_extensions


def a_request(url: str, method: str = "GET", extra: str = "", body: str = "") -> bytes:
    return f"{method} {url} HTTP/1.1\r\nHost: ignored.test\r\nConnection: close\r\n{extra}\r\n{body}".encode()


async def test_request_reaches_the_named_host_only() -> None:
    async with serving() as host, proxying(allow("api.test", host.port)) as proxy:
        extra = "Proxy-Authorization: x\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\nUpgrade: websocket\r\n"
        reply = await proxy.send(a_request(f"http://API.test:{host.port}/a?b", extra=extra))

    head = host.received.decode().lower()
    assert reply.endswith(b"\r\n\r\nhello\n")
    assert head.startswith("get /a?b http/1.1\r\n")
    assert f"host: api.test:{host.port}\r\n" in head
    assert "x-end: 2" in head
    assert not any(word in head for word in ("ignored", "proxy-", "x-hop", "upgrade"))
    [row] = proxy.proxy.report().connections
    assert (row.host, row.port, row.method, row.outcome) == ("api.test", host.port, "GET", "allowed")
    assert (row.sent_bytes, row.received_bytes) == (len(host.received), len(HELLO))


@each(
    "target",
    [
        "http://other.test:{port}/",
        "http://api.test@other.test:{port}/",
        "http://api.test:{port}@other.test/",
        "http://other.test:{port}/#@api.test",
        "http://other.test\\@api.test:{port}/",
        "http://api.test.other.test:{port}/",
        "http://127.0.0.1:{port}/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://017700000001:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::ffff:7f00:1%25lo]:{port}/",
        "http://localhost:{port}/",
        "http://api.test:{port}0/",
        "http://:{port}/",
        "https://api.test:{port}/",
        "ftp://api.test:{port}/",
        "//api.test:{port}/",
        "/",
        "*",
    ],
)
async def test_no_spelling_reaches_an_unnamed_host(target: str) -> None:
    async with (
        serving(address="127.0.0.1") as canary,
        serving() as host,
        proxying(
            allow("api.test", host.port), EgressRule(verdict="allow", hosts="api.test", ports=canary.port)
        ) as proxy,
    ):
        for port in (host.port, canary.port):
            place = target.replace("{port}", str(port))
            reply = await proxy.send(a_request(place))
            assert reply.split(b" ")[1] in (b"400", b"403"), place
        tunnel = target.replace("{port}", str(canary.port)).removeprefix("http://").rstrip("/")
        reply = await proxy.send(a_request(tunnel, "CONNECT"))

    assert reply.split(b" ")[1] in (b"400", b"403"), tunnel
    assert canary.connections == host.connections == 0


@each(
    "request_text",
    [
        "GET http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET http://api.test:{port}/ HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET  http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://api.test:{port}/ HTTP/1.1\r\nVia: 1.1 interlock-egress\r\nHost: a\r\n\r\n",
        "CONNECT api.test:{port} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "GET http://api.test:{port}/ HTTP/1.1\r\nHost: a\r\nX: " + "x" * 70_000 + "\r\n\r\n",
    ],
)
async def test_ambiguous_requests_are_refused(request_text: str) -> None:
    async with serving() as host, proxying(allow("api.test", host.port)) as proxy:
        reply = await proxy.send(request_text.replace("{port}", str(host.port)).encode())

    assert reply[9:10] in (b"4", b"5")
    assert host.connections == 0


async def test_second_request_is_decided_again() -> None:
    async with serving() as host, serving() as other, proxying(allow("api.test", host.port)) as proxy:
        first = f"GET http://api.test:{host.port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
        second = f"GET http://api.test:{other.port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
        reply = await proxy.send((first + second).encode())

    assert b"200 " in reply
    assert b"403 " in reply
    assert other.connections == 0
    assert [row.outcome for row in proxy.proxy.report().connections] == ["allowed", "refused"]


async def test_body_and_answer_pass_as_they_come() -> None:
    big = b"x" * 300_000

    def answer(request: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\n\r\n" + big  # its end is the end of the connection

    async with serving(answer) as host, proxying(allow("api.test", host.port)) as proxy:
        reader, writer = await proxy.open()
        extra = "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
        writer.write(a_request(f"http://api.test:{host.port}/", "POST", extra))
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"3\r\nabc\r\n0\r\n\r\n")
        reply = await reader.read()
        writer.close()

    assert reply.count(b"x") == len(big)
    assert b"transfer-encoding: chunked" in host.received.lower()
    assert b"expect" not in host.received.lower()


async def test_early_answer_ends_the_request() -> None:
    """The host answers before it has read everything, and the client would send for ever."""
    async with (
        serving(lambda request: b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n") as host,
        proxying(allow("api.test", host.port)) as proxy,
    ):
        reader, writer = await proxy.open()
        writer.write(a_request(f"http://api.test:{host.port}/", "POST", "Content-Length: 999999999\r\n", "abc"))
        async with asyncio.timeout(HANG_SECONDS):
            assert b"413" in await reader.read()
        writer.close()


async def test_name_is_resolved_once_and_checked() -> None:
    """The second answer of a rebinding resolver is never asked for, and one bad address spoils all."""
    answers = [[HOST], ["127.0.0.1"], [HOST, "127.0.0.1"], ["169.254.169.254"], ["::1"], []]
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    async with (
        serving(address="127.0.0.1") as canary,
        serving() as host,
        proxying(allow("api.test", host.port), resolve=rebinding) as proxy,
    ):
        replies = [await proxy.send(a_request(f"http://api.test:{host.port}/")) for _ in answers]

    statuses = [reply.split(b" ")[1] for reply in replies]
    assert statuses == [b"200", b"403", b"403", b"403", b"403", b"502"]
    assert len(asked) == len(answers)
    assert canary.connections == 0
    assert host.connections == 1


async def connect(proxy: Proxy, port: int, name: str = "api.test") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
    async with asyncio.timeout(HANG_SECONDS):
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.decode())


async def test_tunnel_carries_tls_to_its_host() -> None:
    authority = CertificateAuthority()
    async with (
        serving(tls=authority.server_context("api.test")) as host,
        proxying(allow("api.test", host.port)) as proxy,
    ):
        reader, writer = await connect(proxy, host.port)
        await writer.start_tls(trusting(authority), server_hostname="api.test")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == HELLO
        writer.close()

    [row] = proxy.proxy.report().connections
    assert (row.method, row.outcome) == ("CONNECT", "allowed")
    assert row.sent_bytes > len(host.received)
    assert row.received_bytes > len(HELLO)


@pytest.mark.parametrize("name", ["other.test", "127.0.0.9"])
async def test_other_tls_name_is_refused(name: str) -> None:
    """An address is sent as no name at all."""
    authority = CertificateAuthority()
    async with (
        serving(tls=authority.server_context(name)) as host,
        proxying(allow("api.test", host.port)) as proxy,
    ):
        _, writer = await connect(proxy, host.port)
        with pytest.raises((ssl.SSLError, OSError)):
            await writer.start_tls(trusting(authority), server_hostname=name)
        writer.close()

    assert host.received == b""
    [row] = proxy.proxy.report().connections
    assert row.outcome == "refused"
    assert "is not the host of the CONNECT" in row.reason


async def test_hidden_tls_name_is_refused() -> None:
    async with serving() as host, proxying(allow("api.test", host.port)) as proxy:
        reader, writer = await connect(proxy, host.port)
        writer.write(with_extensions(named(b"api.test"), b"\xfe\x0d\0\x01x"))
        async with asyncio.timeout(HANG_SECONDS):
            assert await reader.read() == b""
        writer.close()

    assert host.received == b""
    assert "ECH" in proxy.proxy.report().connections[0].reason


async def test_plain_http_in_a_tunnel_names_its_host() -> None:
    async with serving() as host, proxying(allow("api.test", host.port)) as proxy:
        reader, writer = await connect(proxy, host.port)
        head = f"GET / HTTP/1.1\r\nHost: api.test:{host.port}\r\n\r\n"
        writer.write((head + head.replace("api.test", "other.test")).encode())
        writer.write_eof()
        reply = await reader.read()
        writer.close()

    assert b"200 " in reply
    assert b"400 " in reply
    assert b"other.test" not in host.received


async def test_other_protocols_pass_on_named_ports() -> None:
    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-server\r\n")
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(speak_first, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, proxying(allow("api.test", port)) as proxy:
        reader, writer = await connect(proxy, port)
        assert await reader.readline() == b"SSH-2.0-server\r\n"
        writer.write(b"ssh-2.0-client\r\n")
        assert await reader.read() == b"ssh-2.0-client\r\n"
        writer.close()


async def test_web_ports_carry_tls_or_http_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as host, proxying(allow("api.test", host.port)) as proxy:
        monkeypatch.setattr(proxy_module, "WEB_PORTS", (host.port,))
        reader, writer = await connect(proxy, host.port)
        writer.write(b"\x05\x01\0")  # another proxy's words
        async with asyncio.timeout(HANG_SECONDS):
            assert await reader.read() == b""
        writer.close()

    assert host.received == b""
    assert proxy.proxy.report().connections[0].outcome == "refused"


async def test_approved_host_opens_for_the_call() -> None:
    ask = EgressRule(verdict="ask", hosts="api.test", ports=(443,))
    async with serving() as host:
        for approved, status in (((), b"403"), ((f"api.test:{host.port}", f"{HOST}:{host.port}"), b"200")):
            async with proxying(ask, approved=approved) as proxy:
                reply = await proxy.send(a_request(f"http://api.test:{host.port}/"))
            assert reply.split(b" ")[1] == status


async def test_rows_are_bounded_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_ROWS", 3)
    async with proxying() as proxy:
        for number in range(5):
            await proxy.send(a_request(f"http://h{number}.test/"))

    report = proxy.proxy.report()
    assert [row.host for row in report.connections] == ["h0.test", "h1.test", "h2.test"]
    assert report.omitted == 2


async def test_slow_client_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "_HEAD_SECONDS", 0.05)
    async with proxying() as proxy:
        reader, writer = await proxy.open()
        writer.write(b"GET http://api.test/ HTTP/1.1\r\nX-Sl")
        async with asyncio.timeout(HANG_SECONDS):
            assert await reader.read() == b""
        writer.close()


async def test_bytes_of_a_command_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_BYTES", 1_000_000)
    async with (
        serving(lambda request: b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000) as host,
        proxying(allow("api.test", host.port)) as proxy,
    ):
        reply = await proxy.send(a_request(f"http://api.test:{host.port}/"))
        second = await proxy.send(a_request(f"http://api.test:{host.port}/"))

    assert reply.count(b"x") <= 1_000_000
    assert b"200" not in second


async def test_proxy_of_this_process_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    authority = CertificateAuthority()

    async def lead_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if heads[-1].startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.start_tls(authority.server_context("api.test"))
            await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)
        writer.close()

    outer = await asyncio.start_server(lead_on, "127.0.0.1", 0)
    address = f"127.0.0.1:{outer.sockets[0].getsockname()[1]}"
    async with outer, proxying(allow("api.test", 80), allow("api.test", 443)) as proxy:
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", f"http://user:secret-word@{address}")
        assert (await proxy.send(a_request("http://api.test/a"))).endswith(b"hello\n")
        reader, writer = await connect(proxy, 443)
        await writer.start_tls(trusting(authority), server_hostname="api.test")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == HELLO
        writer.close()

    assert [head.split(b"\r\n")[0] for head in heads] == [
        b"GET http://api.test/a HTTP/1.1",
        b"CONNECT api.test:443 HTTP/1.1",
    ]
    assert all(b"Proxy-Authorization: Basic " in head for head in heads)
