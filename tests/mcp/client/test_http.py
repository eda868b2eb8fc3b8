"""Servers that are reached by HTTP, in both eras, with headers of the operator and tokens of users."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp.server.lowlevel.server import Server

from interlock import ConfigurationError, HeadlessInteractionProvider, Observation, ToolRuntime
from interlock.domain.tool import Consent, ConsentBinding
from interlock.mcp import McpTools, ServerConfig
from tests.support import call

from .servers import ScriptedServer, make_tool, text_of


class Site:
    """A server on loopback that keeps the headers of requests, and may change what it answers."""

    def __init__(self, server: ScriptedServer, **options: Any) -> None:
        inner: Server[Any] = server.make_server()
        self.app: Any = inner.streamable_http_app(**options)
        self.url = ""
        #: Method of the protocol and `Authorization`, of every request.
        self.seen: list[tuple[str, str]] = []
        #: Sent instead of an answer to a call.
        self.instead: tuple[dict[bytes, bytes], bytes] | None = None
        #: The only tokens that are let in; None: nobody is asked.
        self.tokens: set[str] | None = None
        self.legacy = server.legacy

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        method, token = headers.get("mcp-method", ""), headers.get("authorization", "")
        self.seen.append((method, token))
        if self.tokens is not None and token.removeprefix("Bearer ") not in self.tokens:
            await _answer(send, 401, {}, b"")
        elif self.legacy and method:
            await _answer(send, 400, {}, b"")  # as a server that knows nothing of the newer protocol
        elif self.instead is not None and method == "tools/call":
            await _answer(send, 200, *self.instead)
        else:
            await self.app(scope, receive, send)

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator["Site"]:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            config = uvicorn.Config(self, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
            try:
                yield self
            finally:
                server.should_exit = True
                await serving


async def _answer(send: Any, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": body})


async def run(tools: McpTools, **options: Any) -> Observation:
    async with ToolRuntime(tools=[tools], mode="trusted", **options) as runtime:
        [seen] = (await runtime.execute([call("c1", "web_echo", text="hi")])).observations
    return seen


@pytest.mark.requirement("R231")
@pytest.mark.parametrize("legacy", [False, True], ids=["2026", "2025"])
async def test_a_server_is_called_with_the_headers_of_the_operator(legacy: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEB_KEY", "operator-key-0123456789")
    server = ScriptedServer(legacy=legacy)
    async with Site(server).serve() as site:
        config = ServerConfig(name="web", url=site.url, headers={"Authorization": "Bearer ${WEB_KEY}"})
        seen = await run(McpTools([config]))
    assert (seen.ok, text_of(seen)) == (True, "hi")
    assert {token for _, token in site.seen} == {"Bearer operator-key-0123456789"}


BAD_ANSWERS: dict[str, tuple[dict[bytes, bytes], bytes]] = {
    "too large": ({b"content-type": b"application/json"}, b"x" * ((16 << 20) + 1)),
    "compressed": ({b"content-type": b"application/json", b"content-encoding": b"gzip"}, b"\x1f\x8b"),
    "no JSON": ({b"content-type": b"application/json"}, b"[[["),
    "no result": ({b"content-type": b"text/html"}, b"<html>"),
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_a_bad_answer_is_a_failure_with_a_code(answer: tuple[dict[bytes, bytes], bytes]):
    server = ScriptedServer()
    async with Site(server).serve() as site:
        site.instead = answer
        seen = await run(McpTools([ServerConfig(name="web", url=site.url, timeout_seconds=5)]))
    assert seen.code in ("outcome_unknown", "upstream_error", "upstream_invalid_output")
    assert seen.side_effects == "unknown"


async def test_redirects_are_not_followed_elsewhere():
    """A token would go to another host."""
    async with Site(ScriptedServer()).serve() as elsewhere, Site(ScriptedServer()).serve() as site:
        tools = McpTools([ServerConfig(name="web", url=site.url)])

        async def redirect(scope: Any, receive: Any, send: Any) -> None:
            await _answer(send, 307, {b"location": elsewhere.url.encode()}, b"")

        site.app = redirect
        async with ToolRuntime(tools=[tools]):
            assert tools.servers["web"].state == "lost"
    assert elsewhere.seen == []


@pytest.mark.requirement("R231")
@pytest.mark.parametrize("legacy", [False, True], ids=["2026", "2025"])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "it requires credentials (HTTP 401)"),
        ({"Authorization": "Bearer ${WEB_KEY}"}, "it refuses the credentials (HTTP 401)"),
    ],
)
async def test_missing_credentials_are_named(
    headers: dict[str, str], reason: str, legacy: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEB_KEY", "operator-key-0123456789")
    async with Site(ScriptedServer(legacy=legacy)).serve() as site:
        site.tokens = {"another"}
        tools = McpTools([ServerConfig(name="web", url=site.url, headers=headers)])
        async with ToolRuntime(tools=[tools]):
            server = tools.servers["web"]
            assert (server.state, server.reason) == ("lost", reason)


class _Key(httpx2.Auth):
    """Credentials that a program brings."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        request.headers["Authorization"] = "Bearer brought-by-the-program"
        yield request


@pytest.mark.requirement("R231")
async def test_a_program_brings_its_own_credentials():
    """They are sent to that server alone, and are never shown."""
    server = ScriptedServer()

    async def tell(arguments: dict[str, Any]) -> Any:
        return server.text("You sent brought-by-the-program.")

    server.answers["echo"] = tell
    async with Site(server).serve() as site, Site(ScriptedServer()).serve() as other:
        site.tokens = {"brought-by-the-program"}
        configs = [ServerConfig(name="web", url=site.url), ServerConfig(name="other", url=other.url)]
        seen = await run(McpTools(configs, auth={"web": _Key()}))
    assert seen.ok
    assert "brought-by" not in text_of(seen)
    assert {token for _, token in other.seen} == {""}


@pytest.mark.parametrize(
    "fields",
    [{"command": ("srv",)}, {"url": "https://a.example/mcp", "consent": Consent(provider="mail")}],
    ids=["command", "consent"],
)
def test_credentials_of_a_program_have_one_place(fields: dict[str, Any]):
    with pytest.raises(ConfigurationError, match="auth is for servers with url and without consent"):
        McpTools([ServerConfig(name="web", **fields)], auth={"web": _Key()})


class Tokens:
    """The tokens that users consented to."""

    can_ask = True

    def __init__(self, **tokens: str) -> None:
        self.tokens = tokens

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return self.tokens.get(binding.user)


@pytest.mark.requirement("R231")
async def test_every_user_has_a_connection_with_their_own_token():
    """The list is made without a token, and no call is made with the token of another user."""
    server = ScriptedServer()
    consents = Tokens(ann="token-of-ann-123456", bob="token-of-bob-123456")
    async with Site(server).serve() as site:
        config = ServerConfig(name="web", url=site.url, consent=Consent(provider="mail"))
        for user in ("ann", "bob"):
            seen = await run(McpTools([config]), consents=consents, requester=user)
            assert seen.ok, seen
    assert [token for method, token in site.seen if method == "tools/call"] == [
        "Bearer token-of-ann-123456",
        "Bearer token-of-bob-123456",
    ]
    assert {token for method, token in site.seen if method == "tools/list"} > {""}


async def test_a_user_without_consent_is_asked_first():
    server = ScriptedServer()
    async with Site(server).serve() as site:
        config = ServerConfig(name="web", url=site.url, consent=Consent(provider="mail"))
        options: Any = {"interaction": HeadlessInteractionProvider("wait"), "consents": Tokens(), "requester": "ann"}
        async with ToolRuntime(tools=[McpTools([config])], mode="trusted", **options) as runtime:
            await runtime.execute([call("c1", "web_echo", text="hi")])
            [question] = await runtime.questions()
    assert (question.kind, server.calls) == ("consent", [])


async def test_pinned_tools_of_a_server_that_lists_only_for_users(tmp_path: Any):
    """It shows nothing without a token: what was accepted is offered, and compared with what the user is shown."""
    server = ScriptedServer()
    consents = Tokens(ann="token-of-ann-123456")
    async with Site(server).serve() as site:
        config = ServerConfig(name="web", url=site.url, consent=Consent(provider="mail"))
        first = McpTools([config], state=tmp_path)
        await first.start()
        await first.close()
        site.tokens = {"token-of-ann-123456"}
        fine = await run(McpTools([config], state=tmp_path), consents=consents, requester="ann")
        server.tools = [make_tool(description="Now it does something else.")]
        changed = await run(McpTools([config], state=tmp_path), consents=consents, requester="ann")
    assert (fine.ok, changed.code) == (True, "tool_quarantined")
    assert len(server.calls) == 1
