"""The reference servers of MCP from npm, in the sandbox: through `McpTools`, and through the gateway."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from interlock import Gate, HeadlessInteractionProvider, ToolRuntime
from interlock.mcp import McpTools, ServerConfig, ServerSandbox
from interlock.mcp.gateway.asking import AskOptions
from interlock.mcp.gateway.gateway import Gateway
from tests.mcp.client.servers import text_of
from tests.mcp.gateway import support
from tests.mcp.gateway.support import ERAS, Era, answering, connect, decide
from tests.mcp.npm_servers.install import EVERYTHING, FILESYSTEM, NPM_SERVERS
from tests.node.install import NODE, NoRegistryError, found
from tests.support import call

#: Calls whose results have every kind of content, and do not differ from call to call.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"message": "héllo"}),
    ("get-sum", {"a": 1, "b": 2}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-tiny-image", {}),
    ("get-resource-links", {"count": 3}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-sum", {"a": "one", "b": 2}),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    if isinstance(missing := found(NPM_SERVERS), NoRegistryError):
        pytest.skip(str(missing))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    return folder


def make_tools(workspace: Path) -> McpTools:
    """Return the tools of both servers: each sees its own program, and one may write in the workspace."""
    programs = (str(NPM_SERVERS.folder), str(NODE.parent.parent))
    everything = ServerConfig(
        name="all", command=(*EVERYTHING, "stdio"), sandbox=ServerSandbox(read=programs), trust="declared"
    )
    files = ServerConfig(
        name="fs", command=(*FILESYSTEM, "."), sandbox=ServerSandbox(write=(".",), read=programs), trust="declared"
    )
    return McpTools([everything, files], workspace=workspace)


@pytest.mark.requirement("R046", "R189", "R231", "R243")
async def test_servers_of_others_in_a_runtime(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "told-to-no-server")
    tools = make_tools(workspace)
    async with ToolRuntime(tools=[tools], interaction=HeadlessInteractionProvider("wait")) as runtime:
        read = call("c1", "fs_read_text_file", path="notes.txt")
        outside = call("c2", "fs_read_text_file", path="/etc/passwd")
        variables = call("c3", "all_get_env")
        seen, refused, environment = (await runtime.execute([read, outside, variables])).observations
        paused = await runtime.execute([call("c4", "fs_write_file", path="new.txt", content="x")])
        [question] = paused.questions
        assert not (workspace / "new.txt").exists()
        await runtime.decide(question.action_id, approved=True, by="ann")
        [written] = (await runtime.resume()).observations
        origins = {runtime.registry.origin(name) for name in ("all_echo", "fs_write_file")}

    assert (seen.ok, text_of(seen), origins) == (True, "hello", {"mcp"})
    assert (refused.code, written.ok, (workspace / "new.txt").read_text()) == ("tool_failed", True, "x")
    assert environment.ok
    assert "told-to-no-server" not in text_of(environment)


@asynccontextmanager
async def open_gateway(workspace: Path, folder: Path, era: Era) -> AsyncGenerator[tuple[Gate, Client]]:
    """Open a gateway, and a client that accepts every form without its user."""
    async with (
        Gate(folder / "state", workspace=workspace) as gate,
        Gateway(gate, make_tools(workspace), principal="ana", options=AskOptions(hold_seconds=0)) as gateway,
        connect(gateway.server, era, answering("accept", "approve")) as client,
    ):
        yield gate, client


@pytest.mark.requirement("R231", "R243")
@pytest.mark.parametrize("era", [ERAS[0], pytest.param(ERAS[1], marks=pytest.mark.soak)])
async def test_results_are_the_same_behind_the_gateway(workspace: Path, tmp_path: Path, era: Era) -> None:
    program = StdioServerParameters(command=EVERYTHING[0], args=[EVERYTHING[1], "stdio"])
    async with (
        open_gateway(workspace, tmp_path, era) as (_, client),
        Client(stdio_client(program), mode="legacy", cache=None) as direct,
    ):
        for name, arguments in CALLS:
            expected = await direct.call_tool(name, arguments)
            result = await client.call_tool(f"all_{name.replace('-', '_')}", arguments)
            assert result.is_error == expected.is_error
            if not expected.is_error:
                assert (result.content, result.structured_content) == (expected.content, expected.structured_content)
        listed = {str(resource.uri) for resource in (await direct.list_resources()).resources}
        offered = {str(resource.uri) for resource in (await client.list_resources()).resources}
        for uri in sorted(listed)[:2]:
            assert (await client.read_resource(uri)).contents == (await direct.read_resource(uri)).contents
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}

    assert listed
    assert listed <= offered
    assert "all_simple-prompt" in prompts


@pytest.mark.requirement("R231", "P29")
async def test_a_write_behind_the_gateway_waits_for_approval(workspace: Path, tmp_path: Path) -> None:
    arguments = {"path": "new.txt", "content": "x"}
    async with open_gateway(workspace, tmp_path, "2025-11-25") as (gate, client):
        read = await client.call_tool("fs_read_text_file", {"path": "notes.txt"})
        pending = await client.call_tool("fs_write_file", arguments)
        assert not (workspace / "new.txt").exists()
        await decide(gate)
        done = await client.call_tool("fs_write_file", arguments)
        await client.call_tool("fs_list_directory", {"path": "."})

    assert read.structured_content == {"content": "hello"}
    assert isinstance(pending.content[0], types.TextContent)
    assert pending.content[0].text.startswith("PENDING")
    assert (support.text_of(done), (workspace / "new.txt").read_text()) == ("Successfully wrote to new.txt", "x")
