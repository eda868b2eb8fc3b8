"""Connections of the proxy to hosts: names are resolved once, and the checked address is the one connected to.

Where this process itself reaches the network through a proxy (`HTTPS_PROXY` and the like), so does this one.
"""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import msgspec

from ...domain.egress import EgressRules
from ...domain.hosts import parse_address
from .channel import Channel, SocketChannel, TlsChannel

CONNECT_SECONDS = 15.0
#: Threads of their own: a command that asks for many slow names keeps only other commands waiting.
_resolving = ThreadPoolExecutor(8, "interlock-egress")
_MAX_REPLY_BYTES = 64 * 1024
_OK = 200

#: The addresses of a name. `OSError` when it has none.
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


class RefusedHostError(Exception):
    """A rule or a check does not let the proxy connect, with a message for people. Nothing was sent."""


class UnreachableHostError(Exception):
    """The host could not be reached, with a message for people."""


class HostProxy(msgspec.Struct, frozen=True):
    """The proxy that this process itself has to use."""

    host: str
    port: int
    #: The value of `Proxy-Authorization`; empty: none.
    authorization: str = ""
    is_tls: bool = False


class Upstream(msgspec.Struct, frozen=True):
    """An open connection to a host, or to the proxy that leads there."""

    channel: Channel
    #: Requests name the whole address: the other end is a proxy.
    via: HostProxy | None = None


async def resolve_with_system(host: str, port: int) -> Sequence[str]:
    """Resolve the name with the system's resolver."""
    lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolving, lookup)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def find_host_proxy(scheme: str, host: str) -> HostProxy | None:
    """Return the proxy that the environment of this process names for a host; None for a direct connection."""
    named = getproxies_environment()
    url = named.get(scheme) or named.get("all")
    if not url or proxy_bypass(host):
        return None
    parts: SplitResult = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnreachableHostError(f"The {scheme} proxy of this process's environment is not an HTTP proxy.")
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    basic = f"Basic {b64encode(user.encode()).decode()}" if user else ""
    is_tls = parts.scheme == "https"
    return HostProxy(parts.hostname, parts.port or (443 if is_tls else 80), basic, is_tls)


async def open_tunnel(host: str, port: int, rules: EgressRules, resolve: Resolver = resolve_with_system) -> Channel:
    """Connect to a host that a rule opens, directly or through the tunnel of a proxy."""
    upstream = await open_upstream(host, port, rules, resolve, scheme="https")
    if upstream.via is None:
        return upstream.channel
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await _request_tunnel(upstream.channel, upstream.via, host, port)
    except BaseException as error:
        upstream.channel.close()
        if isinstance(error, OSError):
            raise UnreachableHostError(f"The proxy of this process did not connect to {host}:{port}.") from None
        raise
    return upstream.channel


async def open_upstream(
    host: str, port: int, rules: EgressRules, resolve: Resolver = resolve_with_system, scheme: str = "http"
) -> Upstream:
    """Connect to a host that a rule opens, or to the proxy that leads there."""
    via = find_host_proxy(scheme, host)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = await _resolve(host, port, rules, resolve, must_resolve=via is None)
            if via is None:
                return Upstream(await _connect(addresses, port))
            return Upstream(await _connect_to_proxy(via), via)
    except TimeoutError:
        raise UnreachableHostError(f"{host}:{port} did not answer within {CONNECT_SECONDS:g} s.") from None
    except ssl.SSLError:
        raise UnreachableHostError("The proxy of this process has no valid certificate.") from None
    except OSError as error:
        raise UnreachableHostError(f"{host}:{port} cannot be reached: {error.strerror or error}.") from None


async def _resolve(host: str, port: int, rules: EgressRules, resolve: Resolver, *, must_resolve: bool) -> Sequence[str]:
    """Return the addresses to connect to. Every one must pass: one good among bad ones is how a check is tricked."""
    if parse_address(host) is not None:
        return (host,)
    try:
        found = await resolve(host, port)
    except OSError:
        if must_resolve:
            raise
        return ()  # only the other proxy knows the name
    for address in found:
        if problem := rules.find_address_problem(address, port):
            raise RefusedHostError(f"{host} resolves to an address that is not allowed: {problem}.")
    if not found and must_resolve:
        raise OSError(f"{host} has no address")
    return found


async def _connect(addresses: Sequence[str], port: int) -> SocketChannel:
    loop, error = asyncio.get_running_loop(), OSError("no address")
    for number, address in enumerate(addresses, 1):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connecting = socket.socket(family, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # An address that does not answer leaves time for the others.
            async with asyncio.timeout(CONNECT_SECONDS / (len(addresses) - number + 2)):
                await loop.sock_connect(connecting, (address, port))
            return SocketChannel(connecting)
        except (OSError, TimeoutError) as failure:
            connecting.close()
            error = failure
        except BaseException:
            connecting.close()
            raise
    raise error


async def _connect_to_proxy(via: HostProxy) -> Channel:
    channel = await _connect(await resolve_with_system(via.host, via.port), via.port)
    if not via.is_tls:
        return channel
    tls = TlsChannel(channel, ssl.create_default_context(), server_hostname=via.host)
    try:
        await tls.handshake()
    except BaseException:
        tls.close()
        raise
    return tls


async def _request_tunnel(channel: Channel, via: HostProxy, host: str, port: int) -> None:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if via.authorization:
        lines.append(f"Proxy-Authorization: {via.authorization}")
    await channel.send("\r\n".join((*lines, "", "")).encode())
    reply = b""
    while b"\r\n\r\n" not in reply:
        data = await channel.receive()
        reply += data
        if not data or len(reply) > _MAX_REPLY_BYTES:
            raise UnreachableHostError(f"The proxy of this process did not connect to {host}:{port}.")
    head, _, rest = reply.partition(b"\r\n\r\n")
    status = 0
    with suppress(IndexError, ValueError):
        status = int(head.split(b" ", 2)[1])
    if status != _OK or rest:
        raise UnreachableHostError(f"The proxy of this process refused to connect to {host}:{port} ({status}).")
