"""The official conformance suite, against the gateway with a server behind it that offers what the suite asks for."""

import asyncio
import re
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock import Gate
from interlock.mcp.client.servers_file import ServerConfig
from interlock.mcp.client.toolbox import McpTools
from interlock.mcp.gateway.asking import AskOptions
from interlock.mcp.gateway.gateway import Gateway
from interlock.mcp.gateway.http import describe_address, open_http, serve_http
from tests.mcp.conformance.fixture_server import make_server
from tests.mcp.conformance.install import CONFORMANCE
from tests.node.install import NODE, NoRegistryError, found

_SECONDS = 240.0
_ROOT = Path(__file__).parents[3]
#: Of an extension that the SDK has no runtime for, or pending in the suite: not scored, and the same without a gateway.
_NOT_SCORED = re.compile(r"tasks-|json-schema-2020-12$|http-custom-header-server-validation$")


@asynccontextmanager
async def _serve_gateway(folder: Path) -> AsyncGenerator[str]:
    command = (sys.executable, "-m", "tests.mcp.conformance.fixture_server")
    config = ServerConfig(
        name="test",
        command=command,
        sandbox=None,
        trust="declared",
        pins="off",
        relay=("elicitation", "sampling", "roots"),
    )
    async with Gate(folder / "state") as gate:
        tools = McpTools([config], workspace=_ROOT, state=folder)
        options = AskOptions(hold_seconds=0)
        async with Gateway(gate, tools, principal="ana", options=options) as gateway:
            with socket.create_server(("127.0.0.1", 0)) as sock:
                async with open_http(gateway.server, sock.getsockname()[1]) as app:
                    serving = asyncio.create_task(serve_http(app, sock))
                    try:
                        yield describe_address(sock)
                    finally:
                        serving.cancel()
                        await asyncio.wait((serving,))


@asynccontextmanager
async def _serve_fixture(folder: Path) -> AsyncGenerator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        app = make_server("test_").streamable_http_app()
        async with app.router.lifespan_context(app):
            serving = asyncio.create_task(serve_http(app, sock))
            try:
                yield describe_address(sock)
            finally:
                serving.cancel()
                await asyncio.wait((serving,))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "serve", [_serve_gateway, pytest.param(_serve_fixture, marks=pytest.mark.soak)], ids=["gateway", "fixture"]
)
async def test_server_conforms(tmp_path: Path, serve: object, revision: str) -> None:
    """What the fixture passes alone, it passes behind the gateway: every scenario that is scored."""
    program = found(CONFORMANCE)
    if isinstance(program, NoRegistryError):
        pytest.skip(str(program))
    opened = _serve_gateway(tmp_path) if serve is _serve_gateway else _serve_fixture(tmp_path)
    async with opened as url:
        arguments = ("server", "--url", url, "--requirements", revision, "--timeout", "60000")
        suite = await asyncio.create_subprocess_exec(
            NODE, program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await suite.communicate()
        finally:
            if suite.returncode is None:
                suite.kill()
                await suite.wait()
    summary = output.decode().partition("=== SUMMARY ===")[2]
    results = re.findall(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", summary, re.MULTILINE)
    failed = [name for mark, name, _, _ in results if mark == "✗" and not _NOT_SCORED.match(name)]

    assert (len(results) >= 30, failed) == (True, []), output.decode()[-20_000:]
