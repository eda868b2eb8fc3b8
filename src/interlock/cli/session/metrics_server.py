"""Serve metrics and health of a process on loopback, at a port of its own."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from ...domain.errors import ConfigurationError
from ...engine.metrics import ProcessMetrics

_HOST = "127.0.0.1"
_ANSWER_SECONDS = 10.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def serve_metrics(metrics: ProcessMetrics, port: int, host: str = _HOST) -> AsyncGenerator[int]:
    """Serve `/metrics`, `/health/live` and `/health/ready` while the context is open, and yield the port."""
    loop = asyncio.get_running_loop()

    class Handler(BaseHTTPRequestHandler):
        timeout = _ANSWER_SECONDS
        server_version = "interlock"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                status, text = asyncio.run_coroutine_threadsafe(_answer(metrics, self.path), loop).result(
                    _ANSWER_SECONDS
                )
            except (TimeoutError, CancelledError, RuntimeError):
                status, text = 503, "The process does not answer.\n"
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: requests come every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port: cannot listen on {host} port {port}: {error.strerror or error}. Nothing was started."
        ) from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.2,), name="interlock-metrics", daemon=True)
    thread.start()
    try:
        async with metrics.watching():
            yield server.server_address[1]
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()


async def _answer(metrics: ProcessMetrics, path: str) -> tuple[int, str]:
    match path.partition("?")[0]:
        case "/metrics":
            return 200, await metrics.render()
        case "/health/live":
            return 200, "ok\n"
        case "/health/ready":
            return (503, f"{metrics.problem}\n") if metrics.problem else (200, "ok\n")
        case _:
            return 404, "There are /metrics, /health/live and /health/ready.\n"
