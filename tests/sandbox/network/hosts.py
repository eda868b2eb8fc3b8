"""Hosts and a proxy for tests of egress, all on loopback: names are resolved by the test."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from interlock.domain.egress import EgressRule, EgressRules
from interlock.sandbox.network.proxy import EgressProxy
from interlock.sandbox.network.upstream import Resolver
from tests.patience import HANG_SECONDS

#: Where the named host of a test is; other hosts are at other addresses of loopback.
HOST = "127.0.0.9"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"


class Host(msgspec.Struct):
    """A server that remembers what it was sent."""

    port: int = 0
    connections: int = 0
    received: bytes = b""
    #: Its answer to a request.
    answer: Callable[[bytes], bytes] = lambda request: HELLO


@asynccontextmanager
async def serving(
    answer: Callable[[bytes], bytes] = lambda request: HELLO, *, address: str = HOST, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Host]:
    """Serve requests with a head and, if it says so, a body of known length; one for each connection."""
    host = Host(answer=answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.connections += 1
        try:
            while data := await reader.read(65_536):
                host.received += data
                if b"\r\n\r\n" in host.received:
                    writer.write(host.answer(host.received))
                    await writer.drain()
                    break
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, address, 0, ssl=tls)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        await server.wait_closed()


async def resolve_to_host(host: str, port: int) -> Sequence[str]:
    """Resolve every name to the host of the test."""
    return (HOST,)


class Proxy(msgspec.Struct):
    """A proxy that is served at a port of this machine."""

    proxy: EgressProxy
    port: int

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, data: bytes) -> bytes:
        """Send these bytes, and return everything that comes back."""
        reader, writer = await self.open()
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(HANG_SECONDS):
            reply = await reader.read()
        writer.close()
        return reply


@asynccontextmanager
async def proxying(
    *rules: EgressRule,
    approved: Sequence[str] = (),
    resolve: Resolver = resolve_to_host,
    get_secret: Callable[[str], str | None] = lambda name: None,
) -> AsyncGenerator[Proxy]:
    """Serve a proxy with these rules."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = EgressProxy(EgressRules(rules, approved), resolve=resolve, get_secret=get_secret)
    proxy.serve(listener)
    try:
        yield Proxy(proxy, listener.getsockname()[1])
    finally:
        await proxy.close()


def allow(hosts: str, port: int, methods: str = "", credential: str = "") -> EgressRule:
    """Return a rule that allows hosts on the port of a server, which may be at the address of the test's host."""
    named = f"{hosts}, {HOST}"
    return EgressRule(verdict="allow", hosts=named, ports=port, methods=methods, credential=credential)
