"""The first answers of a gateway: those of the SDK, sent before it is loaded."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.mcp.gateway.first_answers import AnswerStore, FirstAnswers
from interlock.mcp.gateway.server import GatewayServer
from interlock.mcp.gateway.stdio import read_messages
from interlock.mcp.gateway.stdio_lines import LineConnection, open_lines
from interlock.registry.json_schema import tool_from_schema
from tests.gate.support import SCHEMA
from tests.mcp.gateway.support import ERAS, Era, Payments, open_server
from tests.patience import HANG_SECONDS

INFO = {"name": "coder", "version": "1"}
_ROOT = Path(__file__).parents[3]


def _meta(era: str) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol/"
    return {f"{prefix}protocolVersion": era, f"{prefix}clientInfo": INFO, f"{prefix}clientCapabilities": {}}


def first_requests(era: Era, first_id: int = 1) -> list[bytes]:
    """Return what a client sends first: who are you, and which tools do you have."""
    messages: list[dict[str, Any]]
    if era == "2026-07-28":
        messages = [{"method": method, "params": {"_meta": _meta(era)}} for method in ("server/discover", "tools/list")]
    else:
        hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": INFO}
        messages = [{"method": "initialize", "params": hello}, {"method": "tools/list"}]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": first_id + n} | message).encode() for n, message in enumerate(messages)
    ]
    if era == "2025-11-25":
        lines.insert(1, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    return lines


class _Wire:
    """The pipes of a client."""

    def __init__(self) -> None:
        self.to_server, self.to_client = os.pipe(), os.pipe()
        self._buffer = b""

    def send(self, lines: Sequence[bytes]) -> None:
        os.write(self.to_server[1], b"".join(line + b"\n" for line in lines))

    async def read(self) -> bytes:
        async with asyncio.timeout(HANG_SECONDS):
            while b"\n" not in self._buffer:
                self._buffer += await asyncio.to_thread(os.read, self.to_client[0], 1 << 16)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def ask(self, lines: Sequence[bytes]) -> list[bytes]:
        """Send requests, each after the answer to the one before."""
        answers: list[bytes] = []
        for line in lines:
            self.send([line])
            if b'"id"' in line:
                answers.append(await self.read())
        return answers


@asynccontextmanager
async def open_wire(first: FirstAnswers) -> AsyncGenerator[tuple[_Wire, LineConnection]]:
    wire = _Wire()
    try:
        async with open_lines(wire.to_server[0], wire.to_client[1], first) as connection:
            yield wire, connection
    finally:
        for file in (*wire.to_server, *wire.to_client):
            os.close(file)


@asynccontextmanager
async def served(server: GatewayServer, connection: LineConnection) -> AsyncGenerator[None]:
    """Let the SDK answer."""
    options = server.server.create_initialization_options()
    serving = asyncio.create_task(server.server.run(*read_messages(connection), options))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def open_answers(folder: Path, setup: str = "v1", files: Sequence[str] | None = ()) -> FirstAnswers:
    first = FirstAnswers(AnswerStore(folder / "answers", [setup]))
    first.list_sources = lambda: files
    return first


async def learn(folder: Path, server: GatewayServer, era: Era, files: Sequence[str] | None = ()) -> list[bytes]:
    """Return the answers of the SDK, which are kept."""
    async with open_wire(open_answers(folder, files=files)) as (wire, connection), served(server, connection):
        return await wire.ask(first_requests(era))


@pytest.mark.parametrize("era", ERAS)
async def test_answers_before_the_sdk_have_its_bytes(era: Era, tmp_path: Path) -> None:
    """The SDK gets the requests, too, and what it answers to them is not sent a second time."""
    async with open_server(tmp_path, Payments(tmp_path)) as (_, server):
        expected = await learn(tmp_path, server, era)
        async with open_wire(open_answers(tmp_path)) as (wire, connection):
            early = await wire.ask(first_requests(era, 7))
            async with served(server, connection):
                meta = {"_meta": _meta(era)} if era == "2026-07-28" else {}
                call = {"name": "look", "arguments": {"amount": 5}, **meta}
                request = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}
                [answer] = await wire.ask([json.dumps(request).encode()])

    assert [line.replace(b'"id":7', b'"id":1').replace(b'"id":8', b'"id":2') for line in early] == expected
    assert b"look" in early[-1]
    assert json.loads(answer)["id"] == 9
    assert "seen 5" in json.loads(answer)["result"]["content"][0]["text"]


async def test_a_list_that_changed_is_notified(tmp_path: Path) -> None:
    """The client has the list of the last start. The SDK's answer differs: it is kept, and not sent."""
    async with open_server(tmp_path, Payments(tmp_path)) as (gate, server):
        await learn(tmp_path, server, "2025-11-25")
        gate.tools(tool_from_schema("new", "New.", SCHEMA, Payments(tmp_path).look, risk="read"))
        changed = asyncio.Event()
        first = open_answers(tmp_path)
        first.on_difference = changed.set
        async with open_wire(first) as (wire, connection):
            early = await wire.ask(first_requests("2025-11-25"))
            async with served(server, connection), asyncio.timeout(HANG_SECONDS):
                await changed.wait()
                [pong] = await wire.ask([b'{"jsonrpc":"2.0","id":9,"method":"ping"}'])
        async with open_wire(open_answers(tmp_path)) as (wire, connection):
            [_, again] = await wire.ask(first_requests("2025-11-25"))

    assert b'"new"' not in early[1]
    assert json.loads(pong) == {"jsonrpc": "2.0", "id": 9, "result": {}}
    assert b'"new"' in again


def _change_pins(folder: Path) -> FirstAnswers:
    (folder / "pins").write_text("2")
    return open_answers(folder)


def _change_setup(folder: Path) -> FirstAnswers:
    return open_answers(folder, "v2")


def _spoil(folder: Path) -> FirstAnswers:
    (folder / "answers").write_bytes(b'{"version":1,"answers":[{"key"')
    return open_answers(folder)


@pytest.mark.parametrize("reopen", [_change_pins, _change_setup, _spoil])
async def test_what_may_have_changed_is_left_to_the_sdk(reopen: Any, tmp_path: Path) -> None:
    (tmp_path / "pins").write_text("1")
    async with open_server(tmp_path, Payments(tmp_path)) as (_, server):
        await learn(tmp_path, server, "2025-11-25", [str(tmp_path / "pins")])
    [_, _, request] = first_requests("2025-11-25")

    assert open_answers(tmp_path).find(request) is not None
    assert reopen(tmp_path).find(request) is None


async def test_tools_that_were_not_accepted_are_not_kept(tmp_path: Path) -> None:
    async with open_server(tmp_path, Payments(tmp_path)) as (_, server):
        await learn(tmp_path, server, "2025-11-25", None)
    [hello, _, request] = first_requests("2025-11-25")
    first = open_answers(tmp_path)

    assert first.find(hello) is not None
    assert first.find(request) is None


@pytest.mark.parametrize(
    "line", [b'{"id": 1, "id": 1, "jsonrpc": "2.0", "method": "tools/list"}', b"[", b"\xff", b'{"method": []}']
)
async def test_only_strict_requests_are_answered(line: bytes, tmp_path: Path) -> None:
    async with open_server(tmp_path, Payments(tmp_path)) as (_, server):
        await learn(tmp_path, server, "2025-11-25")

    assert open_answers(tmp_path).find(line) is None


def test_the_command_lists_accepted_tools_and_then_calls_them(tmp_path: Path) -> None:
    """`interlock gateway` as two processes. The second one answers from the first; its calls reach the server."""
    plain = [sys.executable, str(_ROOT / "tests/mcp/client/plain_server.py")]
    lines = ("[servers.plain]", f"command = {json.dumps(plain)}", 'sandbox = "off"', 'trust = "declared"')
    (tmp_path / "mcp.toml").write_text("\n".join(lines))
    (tmp_path / "policy.yaml").write_text("version: 1\nallow: [plain_say]\n")
    options = {"servers": "mcp.toml", "policy": "policy.yaml", "log": "runs.db", "workspace": "."}
    given = [part for name, value in options.items() for part in (f"--{name}", str(tmp_path / value))]
    call = {"name": "plain_say", "arguments": {"text": "hello"}}
    last = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}
    lists: list[bytes] = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", "from interlock.cli.main import main; main()", "gateway", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for line in (*first_requests("2025-11-25"), json.dumps(last).encode()):
                process.stdin.write(line + b"\n")
                process.stdin.flush()
                if b'"id"' in line:
                    lists.append(_read_answer(process.stdout))
            process.stdin.close()

    assert lists[:2] == lists[3:5]
    assert b"plain_say" in lists[1]
    assert [json.loads(lists[n])["result"]["isError"] for n in (2, 5)] == [False, False]
    kept = json.loads((tmp_path / "runs.db.gateway.answers").read_text())["answers"]
    assert len(kept) == 2
    assert (tmp_path / "runs.db.gateway.answers").stat().st_mode & 0o077 == 0


def _read_answer(output: Any) -> bytes:
    while b'"id"' not in (line := output.readline()):
        assert line, "the gateway ended"
    return line
