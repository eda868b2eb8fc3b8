"""Hosts and network addresses: their one spelling, patterns, and which addresses are not on the public network.

What a name resolves to is checked, never how it is written. IPv6 forms that carry an IPv4 address are checked by what
they carry. The tables are our own and not `is_global` of `ipaddress`, whose answer differs between Python versions.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_HOST_CHARS = 253


class NetworkAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Which networks the server may access for one purpose, as configured."""

    #: Also http, without TLS.
    allow_plain: bool = False
    #: Also this machine and private networks. Never metadata services, link-local or multicast.
    allow_private: bool = False


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
    if _ends_in_number(host) and parse_address(host) is None:
        return "its host is a number that is not an IP address as it is usually written"
    return ""


def _describe_network(address: Address, table: _NetworkTable) -> str:
    return next((description for description, networks in table if any(address in network for network in networks)), "")


def parse_address(host: str) -> Address | None:
    """Return the IP address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def host_matches(pattern: str, host: str) -> bool:
    """Return True if the host matches: `example.com` is that host; `*.example.com` is it and its subdomains; `*` is
    any.
    """
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host == pattern[2:] or host.endswith(pattern[1:])
    return host == pattern


#: Characters that some readers of URLs strip, and some take for the end of the host.
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\x9f<>^`{|}\"]")
#: Some readers want two slashes here, others none.
_ODD_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/(?!/)|(?:https?|wss?|ftps?|file):(?!//)", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
#: `0x7f.1`, `2130706433`: numbers that resolvers take for addresses.
_NUMERIC = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+))*\.?")


def parse_host(text: str) -> str | None:
    """Return the host of a text in lower case, without port, user and final dot, IDNA-encoded; None where there is
    none.
    """
    if not text or _AMBIGUOUS.search(text) or _ODD_SCHEME.match(text):
        return None
    try:
        host = urlsplit(text if _SCHEME.match(text) else "//" + text).hostname
    except ValueError:
        return None
    return normalize_host(host) if host and "%" not in host else None


def normalize_host(host: str) -> str | None:
    """Return the one spelling of a host that resolvers use. None where they read a number as an address."""
    host = host.rstrip(".\u3002\uff0e\uff61")
    try:
        address = ip_address(host)
    except ValueError:
        if _NUMERIC.fullmatch(host):
            return None
        return host.lower() or None if host.isascii() else _to_idna(host)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _to_idna(host: str) -> str | None:
    """Return a name of another script as it is sent, which may turn out to be a number."""
    try:
        return normalize_host(host.encode("idna").decode())
    except UnicodeError:
        return None
