"""Plain calls go a short way, and their clients see no difference."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

from tests.each import each
from tests.mcp.gateway.support import Payments, open_server, serve_pipes

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def talk(folder: Path, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Send lines to a gateway, and return as many answers as there are requests."""
    async with open_server(folder, Payments(folder)) as (_, server), serve_pipes(server) as (read_end, write_end):
        os.write(
            write_end, b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)
        )
        count = sum("id" in message for message in messages)

        def read() -> list[dict[str, Any]]:
            with open(os.dup(read_end), "rb") as file:
                return [json.loads(file.readline()) for _ in range(count)]

        answers = await asyncio.to_thread(read)
    return sorted(answers, key=lambda answer: answer["id"])


@pytest.mark.parametrize("modern", [True, False], ids=["2026", "2025"])
async def test_a_plain_result_is_as_the_sdk_makes_it(tmp_path: Path, modern: bool):
    params: dict[str, Any] = {"name": "look", "arguments": {"invoice": "a"}}
    if modern:
        [answer] = await talk(tmp_path, {"id": 1, "method": "tools/call", "params": {**params, "_meta": ENVELOPE}})
    else:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        _, answer = await talk(
            tmp_path,
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": params},
        )
    version = "2026-07-28" if modern else "2025-11-25"
    assert serialize_server_result("tools/call", version, answer["result"]) == answer["result"]
    assert answer["result"]["content"][0]["type"] == "text"
    assert "isError" in answer["result"]


_BAD: list[dict[str, Any]] = [
    {"name": 7},
    {"arguments": {}},
    {"name": "look", "arguments": [1]},
    {"name": "look", "arguments": None, "_meta": {**ENVELOPE, "progressToken": 1.5}},
    {"name": "look", "_meta": {**ENVELOPE, "io.modelcontextprotocol/logLevel": "loud"}},
]


@each("params", _BAD)
async def test_a_bad_call_is_refused_by_the_sdk(params: dict[str, Any], tmp_path: Path):
    [answer] = await talk(tmp_path, {"id": 1, "method": "tools/call", "params": {"_meta": ENVELOPE, **params}})
    assert answer["error"]["code"] == -32602, answer


async def test_a_call_before_the_handshake_is_refused(tmp_path: Path):
    [answer] = await talk(tmp_path, {"id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}})
    assert answer["error"]["code"] == -32602
