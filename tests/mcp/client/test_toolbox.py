"""`McpTools` in a runtime: tools of servers are looked up, called and gone like any others."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client._transport import Transport

from interlock import HeadlessInteractionProvider, ToolRuntime
from interlock.mcp import McpTools, ServerConfig, ServerSandbox
from tests.support import call

from .servers import PROGRAMS, ScriptedServer, make_tool, text_of


async def test_tools_of_a_server_are_called_through_the_pipeline():
    server = ScriptedServer()
    tools = server.toolbox()
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        result = await runtime.execute([call("c1", "srv_echo", text="hello")])
    [seen] = result.observations
    assert (seen.ok, text_of(seen), seen.facts) == (True, "hello", {})
    assert server.calls == [("echo", {"text": "hello"})]


@pytest.mark.requirement("R046")
@pytest.mark.requirement("R189")
async def test_a_real_server_runs_in_the_sandbox(tmp_path: Path):
    """`mcp-server-time` starts when the run opens; its tools are in the one registry, with their origin."""
    file = tmp_path / "mcp.toml"
    file.write_text(f'[servers.time]\ncommand = ["{PROGRAMS}/mcp-server-time"]\ntrust = "declared"\n')
    (tmp_path / "project").mkdir()
    tools = McpTools.from_file(file, workspace=tmp_path / "project")
    async with ToolRuntime(tools=[tools]) as runtime:
        result = await runtime.execute([call("c1", "time_get_current_time", timezone="UTC")])
        names = runtime.registry.names()
        assert runtime.registry.origin("time_get_current_time") == "mcp"
    [seen] = result.observations
    assert seen.ok, seen
    assert names == ("read_artifact", "time_convert_time", "time_get_current_time")


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"command": ("srv",)}, "mcp server/read-only"),
        ({"command": ("srv",), "sandbox": ServerSandbox(write=(".",))}, "mcp server/workspace-write"),
        ({"command": ("srv",), "sandbox": ServerSandbox(network=("a.example",))}, "mcp server/read-only+hosts"),
        ({"command": ("srv",), "sandbox": None}, "none/mcp server"),
        ({"url": "https://mcp.example/mcp"}, "remote/mcp.example"),
    ],
)
async def test_a_question_says_where_the_call_runs(fields: dict[str, Any], shown: str):
    server = ScriptedServer()
    tools = McpTools([ServerConfig(name="srv", **fields)], transports={"srv": server.open})
    async with ToolRuntime(tools=[tools], interaction=HeadlessInteractionProvider("wait")) as runtime:
        paused = await runtime.execute([call("c1", "srv_echo", text="x")])

    assert [question.bound.surroundings.sandbox for question in paused.questions] == [shown]


class _Deaf:
    """A transport that swallows a cancellation, while it connects or while it leaves."""

    def __init__(self, inner: Transport, where: str, reached: asyncio.Event) -> None:
        self._inner, self._where, self._reached = inner, where, reached

    async def __aenter__(self) -> Any:
        await self._swallow("connecting")
        return await self._inner.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._swallow("leaving")
        await self._inner.__aexit__(*error)

    async def _swallow(self, where: str) -> None:
        if where == self._where:
            self._reached.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@pytest.mark.parametrize("where", ["connecting", "leaving"])
async def test_closing_ends_a_connection_that_misses_the_cancellation(where: str):
    server, reached = ScriptedServer(), asyncio.Event()
    tools = McpTools([ServerConfig(name="srv")], transports={"srv": lambda: _Deaf(server.open(), where, reached)})
    starting = asyncio.create_task(tools.start())
    if where == "leaving":
        await starting
        await server.drop()
    await reached.wait()
    await asyncio.wait_for(tools.close(), 30)
    await starting
    assert tools.servers["srv"].state == "closed"


class _SlowServer(ScriptedServer):
    """Its second list is made when it is asked for, and sent when the test says so."""

    def __init__(self) -> None:
        super().__init__(legacy=True)
        self.asked = 0
        self.is_asked, self.may_send = asyncio.Event(), asyncio.Event()

    async def _list(self, context: Any, params: Any) -> Any:
        made = await super()._list(context, params)
        self.asked += 1
        if self.asked == 2:
            self.is_asked.set()
            await self.may_send.wait()
        return made


async def test_a_refresh_joins_no_listing_under_way():
    """The answer of one that was sent before may be older than the change that the refresh is for."""
    upstream = _SlowServer()
    tools = upstream.toolbox()
    await tools.start()
    server = tools.servers["srv"]
    older = asyncio.create_task(server.refresh())
    await upstream.is_asked.wait()
    upstream.tools = [make_tool("other")]
    newer = [asyncio.create_task(server.refresh()) for _ in range(3)]
    upstream.may_send.set()
    await asyncio.gather(older, *newer)

    assert (list(server.quarantined), upstream.asked) == (["srv_other"], 3)
    await tools.close()
