"""Network addresses that the server may call. What a name resolves to is checked, never how it is written.

Every address of a name must pass, or the name is refused: one good address among bad ones is how a check is tricked.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import TypeAlias

import msgspec

from ...domain.hosts import Address, NetworkAccess, find_address_problem, find_host_problem, parse_address

#: The addresses of a name. `OSError` when it has none.
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

RESOLVE_SECONDS = 10.0


class AddressRefusal(msgspec.Struct, frozen=True):
    """The address may not be called; nothing was sent."""

    problem: str


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
    literal = parse_address(host)
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


def _parse_resolved(text: str) -> Address:
    """Parse an address from a resolver. Convert an IPv4-mapped IPv6 address."""
    try:
        address = ip_address(text)
    except ValueError:
        raise OSError(f"the resolver's answer {text[:64]!r} is not an address") from None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
