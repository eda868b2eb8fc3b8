"""Hostile and broken input of clients: a clear answer, and no run."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from interlock.mcp.gateway.gateway import read_key
from interlock.mcp.gateway.stdio import MAX_MESSAGE_BYTES
from tests.mcp.gateway.support import (
    ASK_CLIENT,
    Payments,
    answering,
    connect,
    decide,
    open_server,
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
        first: Any = await call(
            "pay", {"amount": 5}, input_responses=answers, request_state=state, allow_input_required=True
        )
        again: Any = await call(
            "pay", {"amount": 5}, input_responses=answers, request_state=state, allow_input_required=True
        )

    assert refused == [types.INVALID_PARAMS] * 4
    assert text_of(first) == "paid 5"
    assert (text_of(again)[:7], payments.paid) == ("PENDING", [5])


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
