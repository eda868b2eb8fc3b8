"""Hostile and broken input of clients: a clear answer, and no run."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from interlock import Gate, RulePolicy
from interlock.domain.event import WarningRaised, decode_event
from interlock.mcp.gateway.gateway import read_key
from interlock.mcp.gateway.stdio import MAX_MESSAGE_BYTES
from tests.mcp.gateway.support import (
    ASK_CLIENT,
    Payments,
    answering,
    connect,
    decide,
    open_server,
    serve,
    serve_pipes,
    text_of,
)
from tests.patience import HANG_SECONDS

BAD_LINES = [
    b"{",
    b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
    b'"' + b"x" * (MAX_MESSAGE_BYTES + 10) + b'"',
    b"\xff\xfe",
]


async def _read_line(file: int) -> Any:
    buffer = b""
    async with asyncio.timeout(HANG_SECONDS):
        while not buffer.endswith(b"\n"):
            buffer += await asyncio.to_thread(os.read, file, 1)
    return json.loads(buffer)


async def test_bad_lines_are_parse_errors_and_make_no_run(tmp_path: Path) -> None:
    payments = Payments(tmp_path)
    found: list[int] = []
    async with open_server(tmp_path, payments) as (gate, server), serve_pipes(server) as (read_end, write_end):
        for line in BAD_LINES:
            writing = asyncio.create_task(asyncio.to_thread(_write_all, write_end, line + b"\n"))
            found.append((await _read_line(read_end))["error"]["code"])
            await writing
        await asyncio.to_thread(_write_all, write_end, b'{"hello": 1}\n')
        found.append((await _read_line(read_end))["error"]["code"])
        assert await gate.log.run_ids() == []

    assert found == [types.PARSE_ERROR] * len(BAD_LINES) + [types.INVALID_REQUEST]


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


#: Of an HTTP request: headers, body, and the status of the answer.
BAD_REQUESTS: dict[str, tuple[dict[str, str], bytes, int]] = {
    "another host": ({"Host": "evil.example"}, b"{}", 421),
    "another port": ({"Host": "127.0.0.1:1"}, b"{}", 421),
    "a web page": ({"Origin": "https://evil.example"}, b"{}", 403),
    "a local file": ({"Origin": "null"}, b"{}", 403),
    "no type": ({"Content-Type": "text/plain"}, b"{}", 400),
    "no JSON": ({}, b"{", 400),
    "two ids": ({}, BAD_LINES[1], 400),
    "NaN": ({}, BAD_LINES[2], 400),
    "too deep": ({}, BAD_LINES[3], 400),
    "too long": ({}, BAD_LINES[4], 413),
    "a batch": ({}, b"[]", 400),
}


async def test_bad_requests_make_no_run(tmp_path: Path) -> None:
    found: dict[str, int] = {}
    async with (
        open_server(tmp_path, Payments(tmp_path)) as (gate, server),
        serve(server, "http") as url,
        httpx2.AsyncClient() as client,
    ):
        for name, (changed, body, _) in BAD_REQUESTS.items():
            headers = {"Accept": CALL_HEADERS["Accept"], "Content-Type": "application/json", **changed}
            found[name] = (await client.post(url, content=body, headers=headers)).status_code
        runs = await gate.log.run_ids()

    assert (found, runs) == ({name: status for name, (_, _, status) in BAD_REQUESTS.items()}, [])


CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "look",
        "arguments": {"amount": 5},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "coder", "version": "1"},
        },
    },
}
CALL_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "look",
}
#: Headers that say something else than the body, and what the call gets.
OTHER_HEADERS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 0),
    "another tool": ({"Mcp-Name": "pay"}, types.HEADER_MISMATCH),
    "no tool": ({"Mcp-Name": ""}, types.HEADER_MISMATCH),
    "another method": ({"Mcp-Method": "tools/list"}, types.HEADER_MISMATCH),
    "another case": ({"Mcp-Method": "Tools/Call"}, types.HEADER_MISMATCH),
    "an older version": ({"MCP-Protocol-Version": "2025-11-25"}, types.HEADER_MISMATCH),
    "no version": ({"MCP-Protocol-Version": ""}, types.HEADER_MISMATCH),
    "an unknown version": ({"MCP-Protocol-Version": "2099-01-01"}, types.HEADER_MISMATCH),
}
OLDER = {"MCP-Protocol-Version": "2025-11-25"}


async def test_headers_that_differ_from_the_body_are_refused(tmp_path: Path) -> None:
    """What is between a client and the gateway may decide by the headers: they and the body must say the same."""
    payments = Payments(tmp_path)
    found: dict[str, int] = {}
    async with (
        open_server(tmp_path, payments) as (gate, server),
        serve(server, "http") as url,
        httpx2.AsyncClient() as client,
    ):
        for name, (changed, _) in reversed(OTHER_HEADERS.items()):
            assert (payments.started.is_set(), await gate.log.run_ids()) == (False, [])
            answer = await client.post(url, json=CALL, headers={**CALL_HEADERS, **changed})
            found[name] = answer.json().get("error", {}).get("code", 0)

    assert found == {name: code for name, (_, code) in OTHER_HEADERS.items()}
    assert payments.started.is_set()


async def test_headers_count_in_sessions_of_the_older_protocol(tmp_path: Path) -> None:
    """There they mean nothing to the SDK; what is in front of the gateway may let a call through by them."""
    payments = Payments(tmp_path)
    params = {key: value for key, value in CALL["params"].items() if key != "_meta"}
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "coder", "version": "1"}}
    async with (
        open_server(tmp_path, payments, policy=RulePolicy(default="allow")) as (_, server),
        serve(server, "http") as url,
        httpx2.AsyncClient() as client,
    ):
        hello = {**CALL, "method": "initialize", "params": asked}
        begun = await client.post(url, json=hello, headers={"Accept": CALL_HEADERS["Accept"]})
        headers = {**CALL_HEADERS, **OLDER, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
        answer = await client.post(url, json={**CALL, "params": {**params, "name": "pay"}}, headers=headers)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, types.HEADER_MISMATCH)
    assert payments.paid == []


@pytest.mark.requirement("P29")
async def test_request_state_is_bound_and_used_once(tmp_path: Path) -> None:
    """A state that was changed, is for other arguments or of another client is refused; a used one decides nothing."""
    payments = Payments(tmp_path)
    approved = types.ElicitResult(action="accept", content={"decision": "approve"})
    refused: list[int] = []
    async with (
        open_server(tmp_path, payments, policy=ASK_CLIENT) as (gate, server),
        connect(server, "2026-07-28", answering("cancel")) as client,
    ):
        call: Any = client.session.call_tool
        asked: Any = await call("pay", {"amount": 5}, allow_input_required=True)
        state = asked.request_state
        answers = {"approval": approved}
        for other, arguments in ((f"{state[:-4]}AAAA", {"amount": 5}), (state, {"amount": 6}), ("made up", {})):
            with pytest.raises(MCPError) as raised:
                await call("pay", arguments, input_responses=answers, request_state=other, allow_input_required=True)
            refused.append(raised.value.code)
        async with connect(server, "2026-07-28", answering("cancel"), name="another") as thief:
            steal: Any = thief.session.call_tool
            with pytest.raises(MCPError) as raised:
                await steal(
                    "pay", {"amount": 5}, input_responses=answers, request_state=state, allow_input_required=True
                )
            refused.append(raised.value.code)
        assert len(await gate.inbox.pending()) == 1
        warned = {run_id: len(await _warnings(gate, run_id)) for run_id in await gate.log.run_ids()}
        first: Any = await call(
            "pay", {"amount": 5}, input_responses=answers, request_state=state, allow_input_required=True
        )
        again: Any = await call(
            "pay", {"amount": 5}, input_responses=answers, request_state=state, allow_input_required=True
        )

    assert refused == [types.INVALID_PARAMS] * 4
    assert sorted(warned.values()) == [1, 3]  # each in the run of the client that sent it
    assert text_of(first) == "paid 5"
    assert (text_of(again)[:7], payments.paid) == ("PENDING", [5])


@pytest.mark.requirement("P29")
async def test_expired_request_state_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.mcp.gateway.server._STATE_SECONDS", 1e-9)
    payments = Payments(tmp_path)
    async with (
        open_server(tmp_path, payments, policy=ASK_CLIENT) as (gate, server),
        connect(server, "2026-07-28", answering("accept", "approve")) as client,
    ):
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.call_tool("pay", {"amount": 5})
        (question,) = await gate.inbox.pending()
        (warning,) = await _warnings(gate, question.run_id)

    assert payments.paid == []
    assert warning.startswith("The client coder sent a request state with tools/call 'pay' that is forged, expired")


async def _warnings(gate: Gate, run_id: str) -> list[str]:
    recorded = [decode_event(entry).fact for entry in await gate.log.read(run_id)]
    return [fact.message for fact in recorded if isinstance(fact, WarningRaised)]


async def test_disconnected_client_cancels_only_its_calls(tmp_path: Path) -> None:
    payments = Payments(tmp_path)
    payments.go.clear()
    async with open_server(tmp_path, payments) as (_, server), connect(server, "2025-11-25", name="stays") as stays:
        kept = asyncio.create_task(stays.call_tool("look", {"amount": 1}))
        async with connect(server, "2025-11-25", name="leaves") as leaves:
            left = asyncio.create_task(leaves.call_tool("look", {"amount": 2}))
            async with asyncio.timeout(HANG_SECONDS):
                await payments.started.wait()
            left.cancel()
        payments.go.set()
        result = await kept

    assert text_of(result) == "seen 1"


async def test_cancelled_session_run_begins_another(tmp_path: Path) -> None:
    """A person cancels the run of a session: the client goes on in a new one."""
    payments = Payments(tmp_path)
    async with open_server(tmp_path, payments) as (gate, server), connect(server, "2025-11-25") as client:
        await client.call_tool("pay", {"amount": 5})
        (question,) = await gate.inbox.pending()
        await gate.release(question.run_id)
        await gate.inbox.cancel(question.run_id, by="ada")
        pending = await client.call_tool("pay", {"amount": 5})
        await decide(gate)
        done = await client.call_tool("pay", {"amount": 5})

    assert question.action_id not in text_of(pending)
    assert (text_of(done), payments.paid) == ("paid 5", [5])


def test_key_file_is_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = read_key(path)

    assert (len(key), read_key(path), path.stat().st_mode & 0o777) == (32, key, 0o600)
