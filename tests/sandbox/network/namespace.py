"""A small internet in namespaces of its own: public and private addresses on loopback, a DNS server, web servers.

Run as `unshare --mount --net python -m tests.sandbox.network.namespace FOLDER SCRIPT`. The script runs with a rule for
`*.allowed.test` in the real sandbox. Prints JSON: what it printed, its connections, and which servers were reached.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
import threading
from itertools import count
from pathlib import Path

from interlock import LocalTools, Rule, RulePolicy, ToolRuntime
from interlock.policy import EgressRule
from interlock.sandbox.network.certificates import CertificateAuthority
from tests.support import call

PUBLIC, OTHER, PRIVATE, METADATA, LOCAL = "93.184.216.34", "93.184.216.35", "10.0.0.1", "169.254.169.254", "127.0.0.1"
#: Of this network, which nothing else is in.
EVERYWHERE = "0.0.0.0"  # noqa: S104
#: What each name leads to, query by query; the last one stays.
_NAMES = {
    "www.allowed.test": [PUBLIC],
    "private.allowed.test": [PRIVATE],
    "metadata.allowed.test": [METADATA],
    "local.allowed.test": [LOCAL],
    "rebind.allowed.test": [PUBLIC, LOCAL],
    "other.test": [OTHER],
}
_SIOCSIFFLAGS, _SIOCSIFADDR, _UP = 0x8914, 0x8916, 0x1 | 0x40
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_A_QUERY = 1


def set_up(folder: Path) -> None:
    """Give loopback the addresses, and this process the resolver."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22s", b"lo", _UP, b""))
        for number, address in enumerate((PUBLIC, OTHER, PRIVATE, METADATA), 1):
            place = struct.pack("16sH2s4s16s", b"lo:%d" % number, socket.AF_INET, b"", socket.inet_aton(address), b"")
            fcntl.ioctl(control, _SIOCSIFADDR, place)
    (folder / "resolv.conf").write_text(f"nameserver {LOCAL}\noptions attempts:1 timeout:2\n")
    libc = ctypes.CDLL(None, use_errno=True)
    for source, target, flags in (
        (b"none", b"/", _MS_REC | _MS_PRIVATE),
        (os.fsencode(folder / "resolv.conf"), b"/etc/resolv.conf", _MS_BIND),
    ):
        if libc.mount(source, target, None, ctypes.c_ulong(flags), None) != 0:
            raise OSError(ctypes.get_errno(), "mount")


def serve_names() -> None:
    """Answer questions for addresses (RFC 1035), each time with the next one."""
    queries = {name: count() for name in _NAMES}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((LOCAL, 53))
        while True:
            question, client = server.recvfrom(512)
            labels: list[str] = []
            at = 12
            while size := question[at]:
                labels.append(question[at + 1 : at + 1 + size].decode())
                at += 1 + size
            name, kind = ".".join(labels).lower(), int.from_bytes(question[at + 1 : at + 3])
            found = b""
            if kind == _A_QUERY and name in _NAMES:
                addresses = _NAMES[name]
                address = addresses[min(next(queries[name]), len(addresses) - 1)]
                found = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(address)
            flags = b"\x81\x80" if name in _NAMES else b"\x81\x83"
            head = question[:2] + flags + b"\0\x01" + len(found[:1]).to_bytes(2) + b"\0\0\0\0"
            server.sendto(head + question[12 : at + 5] + found, client)


async def run_script(folder: Path, script: str) -> dict[str, object]:
    """Serve the web on all addresses, run the script, and return what happened."""
    reached: list[str] = []
    authority = CertificateAuthority()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")
        head = await reader.readuntil(b"\r\n\r\n")
        reached.append(f"{address}:{port}")
        redirect = b"HTTP/1.1 302 Found\r\nLocation: http://other.test/\r\nContent-Length: 0\r\n\r\n"
        writer.write(redirect if b"/redirect" in head else b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
        writer.close()

    plain = await asyncio.start_server(serve, EVERYWHERE, 80)
    secure = await asyncio.start_server(serve, EVERYWHERE, 443, ssl=authority.server_context("www.allowed.test"))
    workspace = folder / "work"
    workspace.mkdir()
    (workspace / "ca.pem").write_bytes(authority.certificate)
    rules = [Rule(id="commands", verdict="allow", tools="bash")]
    policy = RulePolicy(rules, egress=[EgressRule(verdict="allow", hosts="*.allowed.test")])
    async with plain, secure, ToolRuntime(tools=[LocalTools(workspace)], policy=policy) as runtime:
        [observation] = (await runtime.execute([call("c1", "bash", command=script)])).observations
    text = observation.content.text if observation.content is not None else ""
    return {"text": text, "connections": observation.facts["connections"], "reached": reached}


if __name__ == "__main__":
    set_up(Path(sys.argv[1]))
    threading.Thread(target=serve_names, daemon=True).start()
    print(json.dumps(asyncio.run(run_script(Path(sys.argv[1]), sys.argv[2]))))
