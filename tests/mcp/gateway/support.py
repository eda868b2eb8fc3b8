"""A gateway over two tools: `look` reads, and `pay` writes a line into a file for each payment."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext, ElicitationFnT

from interlock import Gate, Question, Rule, RulePolicy
from interlock.domain.event import CallObserved, Fact, decode_event
from interlock.domain.tool import JsonObject, ToolContext
from interlock.mcp.gateway.asking import AskOptions
from interlock.mcp.gateway.catalog import Catalog
from interlock.mcp.gateway.clients import principal_of_process
from interlock.mcp.gateway.http import describe_address, open_http, serve_http
from interlock.mcp.gateway.offerings import Offerings
from interlock.mcp.gateway.relay import Relay
from interlock.mcp.gateway.server import GatewayServer
from interlock.mcp.gateway.stdio import message_streams
from interlock.registry.json_schema import tool_from_schema
from tests.gate.support import SCHEMA
from tests.patience import eventually_read

Era: TypeAlias = Literal["2026-07-28", "2025-11-25"]
ERAS: tuple[Era, ...] = ("2026-07-28", "2025-11-25")
Transport: TypeAlias = Literal["stdio", "http"]
TRANSPORTS: tuple[Transport, ...] = ("stdio", "http")
ASK_CLIENT = RulePolicy([Rule(id="client-may", verdict="ask", tools="pay", approver="client")])


class Payments:
    """Executes the tools, and knows what happened."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "payments"
        self.started, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def pay(self, arguments: JsonObject, context: ToolContext) -> str:
        self.started.set()
        await self.go.wait()
        with self._file.open("a") as file:
            file.write(f"{arguments['amount']}\n")
        return f"paid {arguments['amount']}"

    async def look(self, arguments: JsonObject, context: ToolContext) -> str:
        self.started.set()
        await self.go.wait()
        return f"seen {arguments['amount']}"

    @property
    def paid(self) -> list[int]:
        return [int(line) for line in self._file.read_text().split()] if self._file.exists() else []


async def _is_ready() -> None:
    pass


@asynccontextmanager
async def open_server(
    folder: Path, payments: Payments, *, principal: str = "ana", policy: Any = None, **asking: Any
) -> AsyncGenerator[tuple[Gate, GatewayServer]]:
    """Open a gateway that does not hold calls, unless it is told to."""
    async with (
        Gate(folder / "state", policy=policy) as gate,
        open_on_gate(gate, payments, principal, **asking) as server,
    ):
        yield gate, server


@asynccontextmanager
async def open_on_gate(
    gate: Gate, payments: Payments, principal: str = "ana", **asking: Any
) -> AsyncGenerator[GatewayServer]:
    """Open a gateway on a gate."""
    gate.tools(
        tool_from_schema("look", "Look something up.", SCHEMA, payments.look, risk="read", concurrency="safe"),
        tool_from_schema("pay", "Pay an invoice.", SCHEMA, payments.pay, risk="write", concurrency="safe"),
    )
    options: dict[str, Any] = {"hold_seconds": 0.0, **asking}
    server = GatewayServer(
        gate,
        principal_of_process(principal),
        AskOptions(**options),
        Catalog(gate, lambda name: None, lambda: False, _is_ready),
        Offerings({}),
        Relay(gate.redact),
        b"k" * 32,
        _is_ready,
    )
    try:
        yield server
    finally:
        await server.close()


def connect(target: Any, era: Era, elicit: ElicitationFnT | None = None, name: str = "coder", **options: Any) -> Client:
    """Return a client of a server, in this process or at a transport, at a version of the protocol."""
    mode = era if era == "2026-07-28" else "legacy"
    info = types.Implementation(name=name, version="1")
    target = target.server if isinstance(target, GatewayServer) else target
    return Client(target, mode=mode, elicitation_callback=elicit, client_info=info, cache=None, **options)


@asynccontextmanager
async def serve(server: GatewayServer, transport: Transport) -> AsyncGenerator[Any]:
    """Serve at a real transport, and yield what a client connects to."""
    if transport == "stdio":
        async with serve_pipes(server) as (read_end, write_end):
            yield message_streams(read_end, write_end)
        return
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with open_http(server, sock.getsockname()[1]) as app:
            serving = asyncio.create_task(serve_http(app, sock))
            try:
                yield describe_address(sock)
            finally:
                serving.cancel()
                await asyncio.wait((serving,))


@asynccontextmanager
async def serve_pipes(server: GatewayServer) -> AsyncGenerator[tuple[int, int]]:
    """Serve at two pipes, and yield the ends of the client: to read from, and to write to."""
    to_server, to_client = os.pipe(), os.pipe()

    async def run() -> None:
        async with message_streams(to_server[0], to_client[1]) as (incoming, outgoing):
            options = server.server.create_initialization_options()
            await server.server.run(incoming, outgoing, options)

    serving = asyncio.create_task(run())
    try:
        yield to_client[0], to_server[1]
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
        for file in (*to_server, *to_client):
            os.close(file)


def answering(action: str, decision: str | None = None) -> ElicitationFnT:
    """Return a client's answer to every form."""

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        content: Any = None if decision is None else {"decision": decision}
        return types.ElicitResult(action=action, content=content)  # pyright: ignore[reportArgumentType]

    return answer


async def decide(gate: Gate, *, approved: bool = True, reason: str = "") -> Question:
    """Answer the open question elsewhere, as a person would."""
    (question,) = await gate.inbox.pending()
    await (gate.inbox.approve if approved else gate.inbox.reject)(question, by="ada", reason=reason)
    return question


async def until_asked(gate: Gate) -> Question:
    """Wait until there is a question."""
    return (await eventually_read(gate.inbox.pending))[0]


async def read_facts(gate: Gate) -> list[Fact]:
    """Return what the only run has recorded."""
    (run_id,) = await gate.log.run_ids()
    return [decode_event(entry).fact for entry in await gate.log.read(run_id)]


async def observed_codes(gate: Gate) -> list[str]:
    """Return the codes of the outcomes that clients got."""
    return [fact.observation.code for fact in await read_facts(gate) if isinstance(fact, CallObserved)]


def text_of(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text
