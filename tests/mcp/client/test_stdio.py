"""Servers that are started here: confined, bounded, and started again when they end."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock import LocalTools, SqliteLog, ToolRuntime
from interlock.domain.event import McpServerConnected, McpServerLost, McpToolsListed
from interlock.mcp import McpTools, ServerConfig, ServerSandbox
from tests.patience import eventually
from tests.support import call, facts

from .servers import text_of

PROGRAM = Path(__file__).with_name("plain_server.py")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(PROGRAM, folder)
    (folder / ".env").write_text("KEY=1")
    return folder


def make_tools(workspace: Path, **fields: Any) -> McpTools:
    config = ServerConfig(name="plain", command=(sys.executable, "plain_server.py"), **fields)
    return McpTools([config], workspace=workspace)


async def test_a_hostile_server_reaches_nothing(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the network, nor the home, the log, sockets, hidden files or variables; and it cannot write."""
    monkeypatch.setenv("MY_TOKEN", "told-to-nobody")
    home, log = tmp_path / "secret", tmp_path / "runs.db"
    home.write_text("private")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(str(tmp_path / "s"))
        local.listen()
        places = {"port": str(listening.getsockname()[1]), "socket": str(tmp_path / "s"), "home": str(home)}
        async with (
            SqliteLog(log) as event_log,
            ToolRuntime(tools=[make_tools(workspace)], mode="trusted", log=event_log) as runtime,
        ):
            [seen] = (await runtime.execute([call("c1", "plain_escape", **places, log=str(log))])).observations
    found = json.loads(text_of(seen))
    assert {name: what.split()[0] for name, what in found.items() if name not in ("variables", "secret")} == {
        **dict.fromkeys(("network", "socket", "home", "log", "write"), "refused"),
        "own home": "reached",
    }
    assert (found["own home"], found["secret"], found["variables"]) == ("reached []", "reached hidden", "")


async def test_a_server_writes_and_sees_what_its_configuration_opens(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    tools = make_tools(workspace, sandbox=ServerSandbox(write=(".",)), env={"MY_TOKEN": "MY_TOKEN"})
    places = {"port": "1", "socket": "/x", "home": "/x", "log": "/x"}
    async with ToolRuntime(tools=[tools, LocalTools(workspace)], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", "plain_escape", **places)])).observations
        [echoed] = (await runtime.execute([call("c2", "plain_say", text="correct-horse-battery")])).observations
    found = json.loads(text_of(seen))
    assert (found["write"], found["variables"]) == ("reached 1", "MY_TOKEN")
    assert (workspace / "written.txt").read_text() == "x"
    assert "correct-horse" not in repr(echoed)


@pytest.mark.requirement("R231")
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("flood", "more than 16,777,216 bytes"),
        ("long_line", "more than 16,777,216 bytes"),
        ("garbage", "cannot be read"),
    ],
)
async def test_a_server_that_breaks_the_limits_is_ended_and_started_again(workspace: Path, tool: str, reason: str):
    async with ToolRuntime(tools=[make_tools(workspace)], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", f"plain_{tool}")])).observations
        [again] = (await runtime.execute([call("c2", "plain_say", text="hi")])).observations
    assert (seen.code, again.ok) == ("outcome_unknown", True)
    assert reason in seen.summary


@pytest.mark.requirement("R231")
async def test_a_server_that_dies_is_recorded_and_started_again(workspace: Path):
    tools = make_tools(workspace)
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", "plain_die")])).observations
        await eventually(lambda: tools.servers["plain"].state == "connected")
        [again] = (await runtime.execute([call("c2", "plain_say", text="hi")])).observations
        recorded = await facts(runtime)
    assert (seen.code, seen.side_effects, again.ok) == ("outcome_unknown", "unknown", True)
    assert "exit code 7" in seen.summary
    kinds = (McpServerConnected, McpToolsListed, McpServerLost)
    assert [type(fact) for fact in recorded if isinstance(fact, kinds)] == [
        McpServerConnected,
        McpToolsListed,
        McpServerConnected,
    ]
    [first, second] = [fact for fact in recorded if isinstance(fact, McpServerConnected)]
    assert first.connection != second.connection
    assert (first.command[1], first.protocol, first.server_name) == ("plain_server.py", "2025-06-18", "plain")
    assert (len(first.executable_sha256), first.reach["sandbox"]) == (64, "bubblewrap")


async def test_standard_error_is_kept_in_part(workspace: Path):
    tools = make_tools(workspace)
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", "plain_stderr", text="hi")])).observations
        await eventually(lambda: len(tools.servers["plain"].stderr) > 10_000)
        kept = tools.servers["plain"].stderr
    assert seen.ok
    assert len(kept) < 20_000
    assert "bytes left out" in kept


async def test_a_server_without_a_sandbox_says_so(workspace: Path):
    """It has the home and the variables that the SDK would give it."""
    tools = make_tools(workspace, sandbox=None)
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", "plain_say", text="hi")])).observations
        [listed] = [tool for tool in runtime.tools() if tool["function"]["name"] == "plain_say"]
    assert seen.ok
    assert "without a sandbox" in listed["function"]["description"]


async def test_a_program_that_is_missing_is_no_server(tmp_path: Path):
    config = ServerConfig(name="gone", command=("no-such-program-here",))
    tools = McpTools([config], workspace=tmp_path)
    async with ToolRuntime(tools=[tools]) as runtime:
        [seen] = (await runtime.execute([call("c1", "gone_x")])).observations
        recorded = await facts(runtime)
        assert "no-such-program-here" in tools.servers["gone"].reason
    assert seen.code == "unknown_tool"
    assert [fact.server for fact in recorded if isinstance(fact, McpServerLost)] == ["gone"]


async def test_servers_work_without_a_workspace():
    program = os.fspath(PROGRAM)
    sandbox = ServerSandbox(read=(os.path.dirname(program),))
    config = ServerConfig(name="plain", command=(sys.executable, program), sandbox=sandbox)
    async with ToolRuntime(tools=[McpTools([config])], mode="trusted") as runtime:
        [seen] = (await runtime.execute([call("c1", "plain_say", text="hi")])).observations
    assert (seen.ok, text_of(seen)) == (True, "hi")


@pytest.mark.requirement("P30")
async def test_a_change_that_is_announced_during_a_call_holds_for_the_next(workspace: Path, tmp_path: Path):
    """The result comes right behind the announcement, and the next call right behind the result."""
    config = ServerConfig(name="plain", command=(sys.executable, "plain_server.py"), pins="first_use")
    tools = McpTools([config], workspace=workspace, state=tmp_path / "state")
    async with ToolRuntime(tools=[tools], mode="trusted") as runtime:
        [changed] = (await runtime.execute([call("c1", "plain_change")])).observations
        [after] = (await runtime.execute([call("c2", "plain_say", text="hi")])).observations
    assert (changed.ok, after.code) == (True, "tool_quarantined")
