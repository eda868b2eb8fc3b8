"""What the gateway costs: `python -m bench.mcp [PYTHON_WITH_FASTMCP]`.

One client calls an echo server over stdio: through a bare proxy of the official SDK (the floor: no policy, no log),
through `interlock gateway` with a log that is synchronized with the disk, and through FastMCP's proxy where a Python
with it is named. What counts is the CPU time of the proxy process per call. All proxies take turns, some calls each, so
that what else the machine does affects them alike; a ratio is the median of the ratios of the rounds. Wall times depend
on the load of the machine, which is printed.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from interlock import Inbox, SqliteLog
from interlock.mcp.gateway.stdio import message_streams

_CALLS, _ROUNDS = 40, 12
_PARALLEL, _SLOW_SECONDS = 16, 0.5
_POLICY = """
version: 1
rules:
  - {id: echo, decision: allow, tools: "echo_*"}
  - {id: ask, decision: ask, tools: echo_ask}
"""
_FAST_PROXY = """
import sys
from fastmcp import FastMCP
from fastmcp.server import create_proxy
echo = {"command": sys.argv[1], "args": ["-m", "bench.mcp", "echo"]}
create_proxy({"mcpServers": {"echo": echo}}).run(show_banner=False)
"""


class Proxy(NamedTuple):
    """A proxy under test."""

    client: Client
    pid: int
    read: str
    write: str


def _tool(name: str, *, read_only: bool) -> types.Tool:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    hints = types.ToolAnnotations(read_only_hint=read_only, open_world_hint=False)
    return types.Tool(name=name, description="Say it again.", input_schema=schema, annotations=hints)


async def _serve_echo() -> None:
    async def list_tools(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
        names = {"read": True, "write": False, "slow": True, "ask": False}
        return types.ListToolsResult(
            tools=[_tool(name, read_only=read_only) for name, read_only in names.items()],
            ttl_ms=0,
            cache_scope="private",
        )

    async def call_tool(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name == "slow":
            await asyncio.sleep(_SLOW_SECONDS)
        return types.CallToolResult(content=[types.TextContent(text=str(params.arguments))])

    server: Server[Any] = Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _serve_bare() -> None:
    """Forward, with the same SDK, and do nothing else."""
    echo = StdioServerParameters(command=sys.executable, args=["-m", "bench.mcp", "echo"], env=dict(os.environ))
    async with Client(echo, cache=None) as upstream:

        async def list_tools(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
            return await upstream.session.list_tools()

        async def call_tool(
            ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            return await upstream.session.call_tool(params.name, params.arguments)

        server: Server[Any] = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def _connect(command: list[str], mode: str, home: Path) -> AsyncGenerator[tuple[Client, int]]:
    process = subprocess.Popen(  # noqa: ASYNC220 - once, before anything is measured
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _PATHS | {"HOME": str(home)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        transport = message_streams(process.stdout.fileno(), process.stdin.fileno())
        async with Client(transport, mode=mode, cache=None) as client:
            yield client, process.pid
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        process.stdin.close()
        process.stdout.close()


_PATHS = {"PYTHONPATH": str(Path(__file__).parents[1])}


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


async def _measure(proxy: Proxy, tool: str, calls: int, start: float) -> float:
    """Return the CPU milliseconds per call. The first call of a turn is not counted: the gateway opens its run again
    after a pause of more than a second, which the turns of the others are.
    """
    await proxy.client.call_tool(tool, {"n": start - 0.25})
    before = _cpu_seconds(proxy.pid)
    for number in range(calls):
        result = await proxy.client.call_tool(tool, {"n": start + number})
        assert not result.is_error, result
    return (_cpu_seconds(proxy.pid) - before) / calls * 1e3


def _gateway_command(folder: Path, *servers: str) -> list[str]:
    (folder / "policy.yaml").write_text(_POLICY)
    echo = {"command": [sys.executable, "-m", "bench.mcp", "echo"], "sandbox": "off", "trust": "declared"}
    root = str(Path(__file__).parents[1])
    lines = [f"{key} = {json.dumps(value)}" for key, value in echo.items()]
    entries = ["\n".join([f"[servers.{name}]", *lines, ""]) for name in servers or ("echo",)]
    (folder / "mcp.toml").write_text("\n".join(entries))
    start = "from interlock.cli.main import main; main()"
    options = ["--servers", folder / "mcp.toml", "--policy", folder / "policy.yaml", "--log", folder / "runs.db"]
    return [sys.executable, "-c", start, "gateway", *map(str, options), "--workspace", root]


Row: TypeAlias = tuple[str, float, str, bool | None]


async def _compare(mode: str, fast_python: str) -> list[Row]:
    """Return rows: what, the figure, the target, and whether it is met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:

            async def connect(command: list[str]) -> tuple[Client, int]:
                return await stack.enter_async_context(_connect(command, mode, folder))

            bare = await connect([sys.executable, "-m", "bench.mcp", "bare"])
            gateway = Proxy(*await connect(_gateway_command(folder)), "echo_read", "echo_write")
            proxies = {"bare SDK proxy": Proxy(*bare, "read", "write"), "interlock gateway": gateway}
            if fast_python:
                fast = await connect([fast_python, "-c", _FAST_PROXY, sys.executable])
                listed = {tool.name for tool in (await fast[0].list_tools()).tools}
                prefix = "echo_" if "echo_read" in listed else ""
                proxies["FastMCP proxy"] = Proxy(*fast, f"{prefix}read", f"{prefix}write")
            spent = await _take_turns(proxies)
            rows = [row for kind, most in (("read", 1.6), ("write", 2.0)) for row in _list_ratios(spent, kind, most)]
            parallel = await _time(lambda: _call_in_parallel(gateway.client))
            rows.append((f"{_PARALLEL} slow calls at once, s", parallel, "< 2 calls", parallel < 2 * _SLOW_SECONDS))
            waited = await _time_approval(gateway.client, folder / "runs.db") * 1e3
            rows.append(("approval while held to result, ms", waited, "<= 300", waited <= 300))
    return rows


async def _take_turns(proxies: dict[str, Proxy]) -> dict[tuple[str, str], list[float]]:
    """Return the CPU milliseconds per call of every round, by proxy and kind. The first round is not counted."""
    spent: dict[tuple[str, str], list[float]] = {(label, kind): [] for label in proxies for kind in ("read", "write")}
    for number in range(_ROUNDS + 1):
        for kind in ("read", "write"):
            for label, proxy in proxies.items():
                start = 1_000 * number + (kind == "write") / 2
                cost = await _measure(proxy, getattr(proxy, kind), _CALLS, start)
                if number:
                    spent[label, kind].append(cost)
    return spent


def _list_ratios(spent: dict[tuple[str, str], list[float]], kind: str, most: float) -> list[Row]:
    ours = spent["interlock gateway", kind]
    rows: list[Row] = [(f"interlock gateway, {kind}, CPU ms", median(ours), "", None)]
    for label, limit in (("bare SDK proxy", most), ("FastMCP proxy", 1.0)):
        if (label, kind) in spent:
            others = spent[label, kind]
            ratio = median(mine / other for mine, other in zip(ours, others, strict=True))
            rows.append((f"{label}, {kind}, CPU ms", median(others), "", None))
            rows.append((f"  gateway, times {label}", ratio, f"<= {limit}", ratio <= limit))
    return rows


async def _time_starts(mode: str) -> list[Row]:
    """Return rows about the start of a gateway with two servers, until the list of tools is there."""
    rows: list[Row] = []
    cpu = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = _gateway_command(folder, "one", "two")
        bare = [sys.executable, "-m", "bench.mcp", "bare"]
        starts = {"bare SDK proxy": bare, "gateway, first start": command, "gateway, tools accepted": command}
        for label, started in starts.items():
            began = time.perf_counter()
            async with _connect(started, mode, folder) as (client, pid):
                await client.list_tools()
                wall, cpu = time.perf_counter() - began, _cpu_seconds(pid)
            target, is_met = ("<= 1.0", wall <= 1) if label == "gateway, tools accepted" else ("", None)
            rows.append((f"{label}: start to tools/list, s", wall, target, is_met))
            rows.append(("  of that CPU of the proxy itself, s", cpu, "", None))
    for module in ("mcp", "pydantic"):
        alone = _time_import(module)
        rows.append((f"python -c 'import {module}', CPU s", alone, "", None))
        rows.append((f"  gateway, tools accepted, times import {module}", cpu / alone, "", None))
    return rows


def _time_import(module: str) -> float:
    """Return the CPU seconds of a process that imports a module and ends."""
    process = subprocess.Popen([sys.executable, "-c", f"import {module}"])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


async def _time(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _call_in_parallel(client: Client) -> None:
    await asyncio.gather(*(client.call_tool("echo_slow", {"n": number}) for number in range(_PARALLEL)))


async def _time_approval(client: Client, log_file: Path) -> float:
    call = asyncio.create_task(client.call_tool("echo_ask", {"n": 1}))
    async with SqliteLog(log_file) as log, Inbox(log) as inbox:
        while not (pending := await inbox.pending()):  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.01)
        began = time.perf_counter()
        await inbox.approve(pending[0], by="bench")
        result = await call
    assert not result.is_error, result
    return time.perf_counter() - began


def main(fast_python: str = "") -> int:
    """Measure both eras of the protocol, print the figures, and return 1 when a target is missed."""
    missed = 0
    for mode in ("auto", "legacy"):
        print(f"protocol {'2026-07-28' if mode == 'auto' else '2025-11-25'}, load {_read_load()}", flush=True)
        for label, figure, target, is_met in asyncio.run(_compare(mode, fast_python)) + asyncio.run(_time_starts(mode)):
            verdict = "" if is_met is None else "met" if is_met else "MISSED"
            missed += is_met is False
            print(f"  {label:<48} {figure:8.2f}  {target:<10} {verdict}", flush=True)
    print(f"mcp {version('mcp')}, {os.cpu_count()} cores, load {_read_load()} at the end")
    return 1 if missed else 0


def _read_load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["echo"]:
            asyncio.run(_serve_echo())
        case ["bare"]:
            asyncio.run(_serve_bare())
        case given:
            sys.exit(main(*given[:1]))
