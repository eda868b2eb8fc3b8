"""The host that an argument names: in a URL, or by itself. None where two readers could see different hosts."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

#: Characters that some readers of URLs strip, and some take for the end of the host.
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\x9f<>^`{|}\"]")
#: Some readers want two slashes here, others none.
_ODD_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/(?!/)|(?:https?|wss?|ftps?|file):(?!//)", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
#: `0x7f.1`, `2130706433`: numbers that resolvers take for addresses.
_NUMERIC = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+))*\.?")


def parse_host(text: str) -> str | None:
    """Lower case, without port, user and final dot; names of other scripts as they are sent."""
    if not text or _AMBIGUOUS.search(text) or _ODD_SCHEME.match(text):
        return None
    try:
        host = urlsplit(text if _SCHEME.match(text) else "//" + text).hostname
    except ValueError:
        return None
    return normalize_host(host) if host and "%" not in host else None


def normalize_host(host: str) -> str | None:
    """One spelling per host: what resolvers would make of the name. None where they make an address of a number."""
    host = host.rstrip(".\u3002\uff0e\uff61")
    try:
        address = ip_address(host)
    except ValueError:
        if _NUMERIC.fullmatch(host):
            return None
        return host.lower() or None if host.isascii() else _to_idna(host)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _to_idna(host: str) -> str | None:
    """A name of another script as it is sent, which may turn out to be a number."""
    try:
        return normalize_host(host.encode("idna").decode())
    except UnicodeError:
        return None
