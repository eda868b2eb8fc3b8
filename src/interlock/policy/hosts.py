"""The host that an argument names: in a URL, or by itself. None where two readers could see different hosts."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

#: Characters that some readers of URLs strip, and some take for the end of the host.
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\x9f<>^`{|}\"]")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
#: `0x7f.1`, `2130706433`: numbers that resolvers take for addresses.
_NUMERIC = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+))*\.?")


def host_of(text: str) -> str | None:
    """Lower case, without port, user and final dot; names of other scripts as they are sent."""
    if not text or _AMBIGUOUS.search(text):
        return None
    try:
        host = urlsplit(text if _SCHEME.match(text) else "//" + text).hostname
    except ValueError:
        return None
    if not host:
        return None
    return _plain(host.rstrip("."))


def _plain(host: str) -> str | None:
    try:
        address = ip_address(host)
    except ValueError:
        if _NUMERIC.fullmatch(host):
            return None
        try:
            return host.encode("idna").decode().lower() if not host.isascii() else host.lower()
        except UnicodeError:
            return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
