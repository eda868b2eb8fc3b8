"""What the proxy of a command costs beside a direct connection on loopback.

The proxy runs in this process, as in use; server and client are processes of their own: `python -m bench.egress serve`,
and `client PROXY_PORT PORT CONNECTIONS BYTES`, which prints the seconds of a connection and of a transfer.
"""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from statistics import median

from interlock.domain.egress import EgressRule, EgressRules
from interlock.sandbox.network.proxy import EgressProxy

_HOST = "127.0.0.9"
_CHUNK_BYTES = 1 << 20
_SIZE_BYTES = 8


async def measure_proxy(rounds: int, connections: int, size_bytes: int) -> dict[str, list[float]]:
    """Return milliseconds by name: `added` of a connection, and a transfer `through` the proxy and `direct`."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.egress", "serve", stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = EgressProxy(EgressRules([EgressRule(verdict="allow", hosts=_HOST, ports=port)]))
    proxy.serve(listener)
    series: dict[str, list[float]] = {"added": [], "through": [], "direct": []}
    try:
        for _ in range(rounds):
            direct = await _run_client(0, port, connections, size_bytes)
            through = await _run_client(listener.getsockname()[1], port, connections, size_bytes)
            series["added"].append((through[0] - direct[0]) * 1e3)
            series["through"].append(through[1] * 1e3)
            series["direct"].append(direct[1] * 1e3)
    finally:
        await proxy.close()
        await server.communicate(b"")  # its input ends, and so does it
    return series


async def _run_client(*words: int) -> list[float]:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.egress", "client", *map(str, words), stdout=subprocess.PIPE
    )
    printed, _ = await client.communicate()
    return [float(word) for word in printed.split()]


def _serve() -> None:
    """Send as many bytes as each client asks for, until the input ends."""
    listener = socket.create_server((_HOST, 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept_all, args=(listener,), daemon=True).start()
    sys.stdin.read()


def _accept_all(listener: socket.socket) -> None:
    chunk = bytes(_CHUNK_BYTES)
    while True:
        accepted, _ = listener.accept()
        with accepted:
            left = int.from_bytes(accepted.recv(_SIZE_BYTES, socket.MSG_WAITALL))
            while left:
                part = chunk[:left]
                accepted.sendall(part)
                left -= len(part)


def _be_client(proxy_port: int, port: int, connections: int, size_bytes: int) -> None:
    waited = [_transfer(proxy_port, port, 1) for _ in range(connections)]
    print(median(waited), _transfer(proxy_port, port, size_bytes))


def _transfer(proxy_port: int, port: int, size_bytes: int) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", proxy_port) if proxy_port else (_HOST, port)) as connected:
        if proxy_port:
            connected.sendall(f"CONNECT {_HOST}:{port} HTTP/1.1\r\nHost: {_HOST}\r\n\r\n".encode())
            reply = b""
            while not reply.endswith(b"\r\n\r\n"):
                reply += connected.recv(1)
        connected.sendall(size_bytes.to_bytes(_SIZE_BYTES))
        buffer, received = bytearray(_CHUNK_BYTES), 0
        while count := connected.recv_into(buffer):
            received += count
    if received != size_bytes:
        raise AssertionError(f"{received} of {size_bytes} bytes arrived")
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        _be_client(*map(int, sys.argv[2:]))
