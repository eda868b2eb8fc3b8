"""The gateway at `/mcp`: only clients with a key or a token for it get through, and sessions belong to them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from interlock import Gate, Inbox
from interlock.mcp.gateway.http import HttpEndpoint
from interlock.server.rest.mcp import METADATA_PATH, mount_gateway
from tests.mcp.gateway.support import ERAS, Era, Payments, connect, open_on_gate, text_of
from tests.server.server_process import Running, running_server

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HEADERS = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncGenerator[Running]:
    payments = Payments(tmp_path)
    async with running_server(tmp_path / "server") as running:
        service = running.service
        gate = Gate(log=service.log, artifacts=service.artifacts)
        async with gate, open_on_gate(gate, payments) as gateway:
            endpoint = HttpEndpoint(gateway)
            async with endpoint.running():
                mount_gateway(running.app, endpoint)
                yield running


async def _post(server: Running, body: Any = PING, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        content = body if isinstance(body, bytes) else None
        document = None if content is not None else body
        sent = {**HEADERS, "Content-Type": "application/json", **headers}
        return await client.post(f"{server.base}/mcp", json=document, content=content, headers=sent)


STRANGERS: list[tuple[dict[str, str], int, str]] = [
    ({}, 401, "no_credentials"),
    ({"Authorization": "Bearer ik_made_up"}, 401, "no_credentials"),
    ({"Authorization": "Basic YTpi"}, 401, "no_credentials"),
    ({"Authorization": "Bearer a.b.c"}, 401, "no_credentials"),
    ({"Host": "evil.example"}, 421, "unknown_host"),
    ({"Origin": "https://evil.example"}, 403, "foreign_origin"),
]
BAD_BODIES: list[tuple[bytes, int]] = [
    (b"{", 400),
    (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', 400),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', 400),
    (b'{"a":' * 100 + b"1" + b"}" * 100, 400),
    (b'"' + b"x" * (2 << 20) + b'"', 413),
]


async def test_strangers_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        answers = [await _post(server, **headers) for headers, _, _ in STRANGERS]
        for key in ("auditor_all", "operator"):  # of another role, and for other agents
            answers.append(await _post(server, Authorization=f"Bearer {await server.key(key)}"))
        async with httpx2.AsyncClient() as client:
            metadata = await client.get(f"{server.base}{METADATA_PATH}")
        public_url = server.service.public_url

    expected = [(status, code) for _, status, code in STRANGERS]
    found = [(answer.status_code, answer.json()["error"]["code"]) for answer in answers]
    assert found == [*expected, (403, "not_allowed"), (403, "not_allowed")]
    assert answers[0].headers["WWW-Authenticate"] == f'Bearer resource_metadata="{public_url}{METADATA_PATH}"'
    assert metadata.json()["resource"] == f"{public_url}/mcp"


@pytest.mark.parametrize("era", ERAS)
async def test_client_with_a_key_is_the_requester(tmp_path: Path, era: Era) -> None:
    async with serving(tmp_path) as server:
        headers = {"Authorization": f"Bearer {await server.key('operator_all')}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{server.base}/mcp", http_client=http)
            async with connect(transport, era) as client:
                result = await client.call_tool("look", {"amount": 5})
                pending = await client.call_tool("pay", {"amount": 5})
        (question,) = await Inbox(server.service.log).pending()

    assert text_of(result) == "seen 5"
    assert text_of(pending).startswith("PENDING")
    assert question.bound.requester == "key:operator-all"


async def test_bad_bodies_make_no_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        key = f"Bearer {await server.key('operator_all')}"
        found = [(await _post(server, body, Authorization=key)).status_code for body, _ in BAD_BODIES]
        runs = await server.service.log.run_ids()

    assert (found, runs) == ([status for _, status in BAD_BODIES], [])
