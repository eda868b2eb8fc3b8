"""Rules about methods and credentials: the proxy reads requests inside of TLS, and keeps the credential outside."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.sandbox.network import proxy as proxy_module
from interlock.sandbox.network.certificates import CertificateAuthority, get_authority
from tests.patience import HANG_SECONDS
from tests.sandbox.network.hosts import HELLO, Host, Proxy, allow, proxying, serving

SECRET = "s3cret-token-value"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    """The authority that the hosts of these tests have their certificates from."""
    return CertificateAuthority()


@pytest.fixture(autouse=True)
def trusted(authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the proxy trusts that authority."""
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


async def ask(proxy: Proxy, host: Host, method: str = "GET", headers: str = "", name: str = "api.test") -> bytes:
    """Send one request through a tunnel, as a client that trusts the authority of the proxy."""
    reader, writer = await proxy.open()
    writer.write(f"CONNECT api.test:{host.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(HANG_SECONDS):
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
        trust = ssl.create_default_context(cadata=get_authority().certificate.decode())
        await writer.start_tls(trust, server_hostname=name)
        head = f"{method} /x HTTP/1.1\r\nHost: api.test:{host.port}\r\nConnection: close\r\n{headers}\r\n"
        writer.write(head.encode())
        reply = await reader.read()
    writer.close()
    return reply


@asynccontextmanager
async def an_api(
    signer: CertificateAuthority,
    *,
    methods: str = "",
    credential: str = "",
    name: str = "api.test",
    echo: bool = False,
) -> AsyncGenerator[tuple[Host, Proxy]]:
    def answer(request: bytes) -> bytes:
        body = request if echo else b"hello\n"
        return b"HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: %d\r\n\r\n" % (SECRET.encode(), len(body)) + body

    async with (
        serving(answer, tls=signer.server_context(name)) as host,
        proxying(allow("api.test", host.port, methods, credential), get_secret={"API_TOKEN": SECRET}.get) as proxy,
    ):
        yield host, proxy


async def test_only_listed_methods_pass(authority: CertificateAuthority) -> None:
    async with an_api(authority, methods="GET") as (host, proxy):
        allowed = await ask(proxy, host)
        refused = await ask(proxy, host, "POST", "Content-Length: 0\r\n")

    assert allowed.endswith(b"hello\n")
    assert refused.split(b" ")[1] == b"403"
    assert b"No egress rule allows POST to api.test" in refused
    assert b"POST" not in host.received
    rows = [(row.method, row.outcome) for row in proxy.proxy.report().connections]
    assert rows == [("CONNECT", "allowed"), ("GET", "allowed"), ("CONNECT", "allowed"), ("POST", "refused")]


async def test_credential_is_added_and_never_comes_back(authority: CertificateAuthority) -> None:
    async with an_api(authority, credential="API_TOKEN", echo=True) as (host, proxy):
        reply = await ask(proxy, host, headers="Authorization: Bearer placeholder\r\nAccept-Encoding: gzip\r\n")

    sent = host.received.lower()
    assert f"authorization: bearer {SECRET}".encode() in sent
    assert sent.count(b"authorization") == 1
    assert b"accept-encoding: identity" in sent
    assert SECRET.encode() not in reply
    assert b"Bearer " + b"*" * len(SECRET) in reply


async def test_missing_credential_refuses_the_request(authority: CertificateAuthority) -> None:
    async with an_api(authority, credential="OTHER_TOKEN") as (host, proxy):
        reply = await ask(proxy, host)

    assert b"The credential OTHER_TOKEN is not set" in reply
    assert host.received == b""


@pytest.mark.parametrize("by_trusted", [True, False])
async def test_certificate_that_does_not_fit_is_refused(authority: CertificateAuthority, by_trusted: bool) -> None:
    signer = authority if by_trusted else CertificateAuthority()
    name = "other.test" if by_trusted else "api.test"
    async with an_api(signer, credential="API_TOKEN", name=name) as (host, proxy):
        reply = await ask(proxy, host)

    assert reply.split(b" ")[1] == b"403"
    assert b"The certificate of api.test" in reply
    assert host.received == b""
    assert proxy.proxy.report().connections[-1].outcome == "refused"


async def test_request_inside_names_the_host_of_the_tunnel(authority: CertificateAuthority) -> None:
    async with an_api(authority, methods="GET") as (host, proxy):
        reply = await ask(proxy, host, headers="Host: other.test\r\n")
        with pytest.raises((ssl.SSLError, OSError)):
            await ask(proxy, host, name="other.test")

    assert reply.split(b" ")[1] == b"400"
    assert host.received == b""


async def test_credential_is_not_sent_without_tls() -> None:
    async with (
        serving(lambda request: HELLO) as host,
        proxying(allow("api.test", host.port, credential="API_TOKEN"), get_secret=lambda name: SECRET) as proxy,
    ):
        request = f"GET http://api.test:{host.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        reply = await proxy.send(request.encode())

    assert b"is sent with TLS only" in reply
    assert host.connections == 0


async def test_missing_library_refuses_and_names_it(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "can_make_certificates", lambda: False)
    async with an_api(authority, methods="GET") as (host, proxy):
        reply = await proxy.send(f"CONNECT api.test:{host.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    assert reply.split(b" ")[1] == b"403"
    assert b"need the package cryptography" in reply
    assert host.connections == 0
