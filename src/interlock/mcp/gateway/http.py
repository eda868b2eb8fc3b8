"""Serve clients over streamable HTTP, at the path `/mcp`.

Before the SDK sees a request, its body is read within limits and checked to be strict JSON. `Host` and `Origin` are
checked, so that no web page reaches a gateway on this machine.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import mcp_types as types
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import NAME_BEARING_METHODS, decode_header_value
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...domain.json import InvalidJsonError, parse
from .server import GatewayServer
from .stdio import MAX_MESSAGE_BYTES

PATH = "/mcp"
_BODY_SECONDS = 30.0
_STOP_SECONDS = 3
_NAMES = ("127.0.0.1", "localhost", "[::1]")


class HttpEndpoint:
    """The ASGI application of a gateway. `async with endpoint.running():` while it serves."""

    def __init__(self, server: GatewayServer, security: TransportSecuritySettings | None = None) -> None:
        """
        Args:
            server: The server of the gateway.
            security: The hosts and origins that are accepted. Default: whatever is around it checks them.
        """
        self._manager = StreamableHTTPSessionManager(
            server.server, security_settings=security, max_request_body_size=MAX_MESSAGE_BYTES
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve inside `async with`. Only once."""
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["method"] != "POST":
            await self._manager.handle_request(scope, receive, send)
            return
        try:
            body = await _read_body(receive)
        except TimeoutError:
            await _refuse(send, 408, types.PARSE_ERROR, f"The body did not arrive within {_BODY_SECONDS:g} s.")
            return
        if body is None:
            await _refuse(send, 413, types.PARSE_ERROR, f"The body has more than {MAX_MESSAGE_BYTES} bytes.")
            return
        try:
            message = parse(body)
        except InvalidJsonError as error:
            await _refuse(send, 400, types.PARSE_ERROR, f"The body is not strict JSON: {error}.")
            return
        if header := _find_mismatch(scope, message):
            await _refuse(send, 400, types.HEADER_MISMATCH, f"The header {header} differs from the body.")
            return
        await self._manager.handle_request(scope, _Replay(body, receive), send)


def _find_mismatch(scope: Scope, message: object) -> str:
    """Return the header that names another method, tool or version than the body; else empty. The SDK checks it for
    requests of the newer protocol only, and what is in front of the gateway may rely on it for all.
    """
    body = cast(dict[str, Any], message if isinstance(message, dict) else {})
    method, params = body.get("method"), body.get("params")
    fields = cast(dict[str, Any], params if isinstance(params, dict) else {})
    meta = fields.get("_meta")
    version = cast(dict[str, Any], meta).get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    for raw_name, value in scope["headers"]:
        text = value.decode("latin-1")
        match raw_name:
            case b"mcp-method" if text != method:
                return "Mcp-Method"
            case b"mcp-name" if decode_header_value(text) != fields.get(NAME_BEARING_METHODS.get(str(method), "")):
                return "Mcp-Name"
            case b"mcp-protocol-version" if version is not None and text != version:
                return "MCP-Protocol-Version"
            case _:
                pass
    return ""


class _Replay:
    """Gives a body that was read, and then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body; None when it is too long. An aborted request has an empty one."""
    body = bytearray()
    async with asyncio.timeout(_BODY_SECONDS):
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > MAX_MESSAGE_BYTES:
                return None
            if message["type"] != "http.request" or not message.get("more_body", False):
                return bytes(body)


async def _refuse(send: Send, status: int, code: int, message: str) -> None:
    error = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))
    body = error.model_dump_json(by_alias=True, exclude_unset=True).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def local_security(port: int) -> TransportSecuritySettings:
    """Return the hosts and origins of a server that only this machine reaches."""
    hosts = [f"{name}:{port}" for name in _NAMES]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])


@asynccontextmanager
async def open_http(server: GatewayServer, port: int) -> AsyncGenerator[ASGIApp]:
    """Yield an application that serves the gateway to this machine."""
    endpoint = HttpEndpoint(server, local_security(port))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"].rstrip("/") != PATH:
            await _refuse(send, 404, types.INVALID_REQUEST, f"The path of the gateway is {PATH}.")
            return
        await endpoint(scope, receive, send)

    async with endpoint.running():
        yield app


def describe_address(sock: socket.socket) -> str:
    """Return the address of the gateway that listens here."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


async def serve_http(app: ASGIApp, sock: socket.socket) -> None:
    """Serve until a signal."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    await uvicorn.Server(config).serve(sockets=[sock])
