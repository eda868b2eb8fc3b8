"""Network addresses that the server may call. What a name resolves to is checked, never how it is written.

Every address of a name must pass, or the name is refused: one good address among bad ones is how a check is tricked.
IPv6 forms that carry an IPv4 address are checked by what they carry. The tables are our own and not `is_global` of
`ipaddress`, whose answer differs between Python versions.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
#: The addresses of a name. `OSError` when it has none.
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_HOST_CHARS = 253
RESOLVE_SECONDS = 10.0


class NetworkAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Which networks the server may access for one purpose, as configured."""

    #: Also http, without TLS.
    allow_plain: bool = False
    #: Also this machine and private networks. Never metadata services, link-local or multicast.
    allow_private: bool = False


class AddressRefusal(msgspec.Struct, frozen=True):
    """The address may not be called; nothing was sent."""

    problem: str


def _parse_networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


_NetworkTable: TypeAlias = tuple[tuple[str, tuple[Network, ...]], ...]

#: Metadata services, which hand out credentials to any process of this machine. Some have private or public addresses.
_METADATA_NETWORKS: _NetworkTable = (
    (
        "an address of metadata services",
        _parse_networks(
            "169.254.0.0/16",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::/32",
            "fd20:ce::254/128",
        ),
    ),
)
#: What `allow_private` opens.
_PRIVATE_NETWORKS: _NetworkTable = (
    ("a loopback address", _parse_networks("127.0.0.0/8", "::1/128")),
    ("a private address", _parse_networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
    ("a shared address behind a carrier's NAT", _parse_networks("100.64.0.0/10")),
)
#: What nothing opens, from the IANA registries of special-purpose addresses.
_BLOCKED_NETWORKS: _NetworkTable = (
    ("the address of no host", _parse_networks("0.0.0.0/8", "::/128")),
    ("a link-local address", _parse_networks("fe80::/10", "fec0::/10")),
    ("a multicast address", _parse_networks("224.0.0.0/4", "ff00::/8")),
    ("a 6to4 tunnel", _parse_networks("2002::/16", "192.88.99.0/24")),
    ("a Teredo tunnel", _parse_networks("2001::/32")),
    ("an address of a local translator (NAT64)", _parse_networks("64:ff9b:1::/48")),
    (
        "an address for documentation or tests",
        _parse_networks(
            "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "2001:db8::/32", "3fff::/20"
        ),
    ),
    # Of IPv6 only 2000::/3 is in use; the other seven eighths are named here.
    (
        "a reserved address",
        _parse_networks("192.0.0.0/24", "240.0.0.0/4", "2001::/23", "::/3", "4000::/2", "8000::/1"),
    ),
)
_NAT64_NETWORK = ip_network("64:ff9b::/96")

_ends_in_number = re.compile(r"(?:\A|\.)(?:0[xX][0-9a-fA-F]*|[0-9]+)\.?\Z").search


def find_address_problem(address: Address, access: NetworkAccess) -> str:
    """Return why this address may not be called; empty when it may."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return find_address_problem(address.ipv4_mapped, access)
        if address in _NAT64_NETWORK:
            # A translator brings us to the public network; one that leads to a private one is a way around this check.
            return find_address_problem(IPv4Address(int(address) & 0xFFFF_FFFF), NetworkAccess())
    private = _describe_network(address, _PRIVATE_NETWORKS)
    description = _describe_network(address, _METADATA_NETWORKS) or (
        "" if private and access.allow_private else private
    )
    if not description and not private:
        description = _describe_network(address, _BLOCKED_NETWORKS)
    return f"{address} is {description}" if description else ""


def find_host_problem(host: str) -> str:
    """Return what is wrong with a host as written; empty when nothing is. Numbers that only some parsers read as an
    address (`2130706433`, `0x7f.1`, `127.1`) are refused.
    """
    if not host or len(host) > MAX_HOST_CHARS:
        return "it names no host"
    if not host.isascii() or not host.isprintable() or "%" in host or " " in host:
        return "its host has characters that no host has"
    if _ends_in_number(host) and _parse_literal(host) is None:
        return "its host is a number that is not an IP address as it is usually written"
    return ""


async def resolve_with_system(host: str, port: int) -> Sequence[str]:
    """Resolve the name with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


async def resolve_allowed_addresses(
    host: str, port: int, access: NetworkAccess, resolve: Resolver = resolve_with_system
) -> tuple[str, ...] | AddressRefusal:
    """Return the addresses to connect to, resolved once: resolving again would bypass the check. Raise `OSError` when
    it cannot be resolved.
    """
    if problem := find_host_problem(host):
        return AddressRefusal(f"The address cannot be called: {problem}. Nothing was sent.")
    literal = _parse_literal(host)
    async with asyncio.timeout(RESOLVE_SECONDS):
        texts = [str(literal)] if literal else await resolve(host, port)
    found = tuple(_parse_resolved(text) for text in texts)
    if not found:
        raise OSError(f"{host} has no address")
    for address in found:
        problem = find_address_problem(address, access)
        if problem:
            return AddressRefusal(
                f"{host} may not be called: {problem}. Nothing was sent. If it is meant to be called, the "
                "configuration has to say `allow_private = true` for it, which opens loopback and private networks."
            )
    return tuple(str(address) for address in found)


def _describe_network(address: Address, table: _NetworkTable) -> str:
    return next((description for description, networks in table if any(address in network for network in networks)), "")


def _parse_literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _parse_resolved(text: str) -> Address:
    """Parse an address from a resolver. Convert an IPv4-mapped IPv6 address."""
    try:
        address = ip_address(text)
    except ValueError:
        raise OSError(f"the resolver's answer {text[:64]!r} is not an address") from None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
