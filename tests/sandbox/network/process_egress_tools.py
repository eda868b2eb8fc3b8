"""Tools in a process with its own network. The child imports this module to find them."""

import socket
from urllib.error import HTTPError
from urllib.request import urlopen

from interlock import tool


@tool(isolation="process", egress=True)
def fetch(url: str) -> str:
    """Return what a page says, or how it was refused."""
    try:
        with urlopen(url, timeout=30) as page:  # noqa: S310 - of the test's own server
            return page.read().decode()
    except HTTPError as error:
        return f"refused {error.code}"


@tool(isolation="process", egress=True)
def connect(host: str, port: int) -> str:
    """Connect past the proxy."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        return f"failed: {type(error).__name__}"
    return "connected"
