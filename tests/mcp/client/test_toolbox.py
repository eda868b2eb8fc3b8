"""`McpTools` in a runtime: tools of servers are looked up, called and gone like any others."""

from pathlib import Path

import pytest

from interlock import ToolRuntime
from interlock.mcp import McpTools
from tests.support import call

from .servers import PROGRAMS, ScriptedServer, text_of


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
