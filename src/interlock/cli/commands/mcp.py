"""`interlock mcp`: the MCP servers of a servers file, their tools, and what was accepted of them."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ...domain.call import ToolIntent
from ...domain.errors import ConfigurationError
from ...domain.outcome import Phase
from ...domain.rendering import render_for_user
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.text import describe_unknown
from ...runtime import ToolRuntime
from ...storage.file_artifacts import FileArtifacts
from ...storage.sqlite.log import SqliteLog
from ..config.logs import find_run_files, require_log_file
from ..config.policy_files import load_policy, require_valid
from ..config.settings import SETTING_TYPES, load_settings, parse_setting
from ..config.user_paths import find_user_paths, login_name
from ..display.output import echo, echo_json, echo_table
from ..exit_codes import ExitCode, format_exit_codes
from ..options import (
    JsonOption,
    LogOption,
    ModeOption,
    PolicyOption,
    WorkspaceOption,
    argument,
    collect_options,
    create_app,
    option,
)
from ..session.mcp_tools import open_mcp_tools
from ..session.trust import resolve_project

try:
    from ...mcp.client.server import McpServer
    from ...mcp.client.toolbox import McpTools
except ModuleNotFoundError as missing:
    raise ConfigurationError("MCP needs more than the command: pip install 'interlock[mcp]'") from missing

_EXITS = format_exit_codes(
    ok="done", failed="a server cannot be used, or the call failed", usage="bad usage, or an invalid file"
)
_CALL_EXITS = format_exit_codes(
    ok="the call succeeded",
    failed="it failed",
    usage="bad usage, or an invalid file",
    refused="it was refused by a policy or a person",
)

ServersOption = Annotated[
    Path | None, option("File with the MCP servers. Default: mcp.toml in the config directory.", metavar="FILE")
]
_T = TypeVar("_T")

app = create_app(_EXITS, is_group=True)


def _with_tools(servers: Path | None, workspace: Path | None, use: Callable[[McpTools], Awaitable[_T]]) -> _T:
    """Connect the servers, and use them."""

    async def run() -> _T:
        tools = open_mcp_tools(servers, _read_folder(workspace), find_user_paths())
        try:
            await tools.start()
            return await use(tools)
        finally:
            await tools.close()

    return asyncio.run(run())


def _read_folder(workspace: Path | None) -> Path:
    folder = Path(os.path.realpath(workspace or Path()))
    if not folder.is_dir():
        raise ConfigurationError(f"{workspace} is not a folder. `--workspace` names the folder to work in.")
    return folder


def _find_server(tools: McpTools, name: str) -> McpServer:
    if name not in tools.servers:
        raise ConfigurationError(describe_unknown("server", name, tools.servers))
    return tools.servers[name]


@app.command("list", epilog=_EXITS)
def list_servers(
    *, servers: ServersOption = None, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """List the servers and their tools, with what is in quarantine."""

    async def show(tools: McpTools) -> bool:
        found = [_server_to_json(server, tools) for server in tools.servers.values()]
        if as_json:
            echo_json(found)
        else:
            _echo_servers(tools)
        return all(server.state == "connected" for server in tools.servers.values())

    if not _with_tools(servers, workspace, show):
        raise typer.Exit(ExitCode.FAILED)


@app.command("test", epilog=_EXITS)
def check_server(
    name: Annotated[str, argument("SERVER", "Name of the server.")],
    *,
    servers: ServersOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start or reach one server, and show what it says, its tools and what it wrote to standard error."""

    async def show(tools: McpTools) -> bool:
        server = _find_server(tools, name)
        if as_json:
            echo_json(_server_to_json(server, tools))
        else:
            info = server.info
            echo(f"{name}: {server.state}", f": {server.reason}" if server.reason else "")
            echo(f"  reached by   {' '.join(server.config.command) or server.config.url}")
            echo(f"  sandbox      {_describe_sandbox(server)}")
            echo(f"  protocol     {server.protocol or '-'}")
            echo(f"  says it is   {f'{info.name} {info.version}' if info is not None else '-'}")
            echo(f"  trust, pins  {server.config.trust}, {server.config.pins}")
            _echo_tools(server, tools)
            for line in server.stderr.splitlines()[-20:]:
                echo(f"  stderr: {line}")
        return server.state == "connected" and not server.problems

    if not _with_tools(servers, workspace, show):
        raise typer.Exit(ExitCode.FAILED)


@app.command("diff", epilog=_EXITS)
def show_diff(
    name: Annotated[str, argument("SERVER", "Name of the server.")],
    *,
    servers: ServersOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show how the definitions of a server differ from what was accepted."""

    async def show(tools: McpTools) -> None:
        server = _find_server(tools, name)
        if server.state != "connected":
            raise ConfigurationError(f"The server {name} is {server.state}: {server.reason}")
        for held in server.quarantined.values():
            echo(f"{name}/{held.tool.raw.name}: {held.deviation.kind}")
            for line in held.deviation.diff.splitlines():
                echo(f"  {line}")
        if not server.quarantined:
            echo(f"All tools of {name} are as they were accepted.")

    _with_tools(servers, workspace, show)


@app.command("accept", epilog=_EXITS)
def accept_tools(
    names: Annotated[
        list[str], argument("SERVER[/TOOL]...", "Tools as their server names them; a server alone is all its tools.")
    ],
    *,
    servers: ServersOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Accept definitions as they are now. Look at them with `interlock mcp diff` first."""

    async def accept(tools: McpTools) -> None:
        for name in names:
            server_name, separator, tool = name.partition("/")
            server = _find_server(tools, server_name)
            if server.state != "connected":
                raise ConfigurationError(f"The server {server_name} is {server.state}: {server.reason}")
            for accepted in server.accept([tool] if separator else None):
                echo(f"accepted {server_name}/{accepted}")

    _with_tools(servers, workspace, accept)


@app.command("call", epilog=_CALL_EXITS)
def call_tool(  # noqa: PLR0913 - one for each option
    name: Annotated[str, argument("TOOL", "Name of the tool here, as `mcp list` shows it.")],
    arguments: Annotated[str, argument("JSON", "Arguments of the call, as a JSON object.")] = "{}",
    *,
    servers: ServersOption = None,
    workspace: WorkspaceOption = None,
    policy: PolicyOption = None,
    mode: ModeOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call one tool, under policy: where it asks, you are asked at this terminal. The call is recorded."""
    user_paths, folder = find_user_paths(), _read_folder(workspace)
    project = resolve_project(folder, user_paths, ask=False)
    chosen = {
        key: parse_setting(key, SETTING_TYPES[key], text, f"--{key}")
        for key, text in collect_options(policy=policy, mode=mode).items()
    }
    settings = load_settings(user_paths, project, options=chosen).settings
    rules = require_valid(load_policy(settings, user_paths, project, str(folder)))
    files = find_run_files(log, user_paths)
    if files.log.exists():
        require_log_file(str(files.log))
    if log is None:
        user_paths.make_state_folder()

    async def run() -> ExitCode:
        tools = open_mcp_tools(servers, folder, user_paths)
        async with SqliteLog(files.log) as event_log:
            runtime = ToolRuntime(
                tools=[tools],
                policy=rules,
                interaction=TerminalInteractionProvider(None) if sys.stdin.isatty() else None,
                log=event_log,
                artifacts=FileArtifacts(files.artifacts),
                agent="interlock mcp call",
                mode=settings.mode,
                workspace=folder,
                requester=login_name(),
            )
            async with runtime:
                result = await runtime.execute([ToolIntent(call_id="call_1", tool_name=name, arguments=arguments)])
                await runtime.complete()
                [seen] = result.observations
                if as_json:
                    echo_json(seen)
                else:
                    text = seen.content.text if seen.content is not None else render_for_user(seen)
                    for line in text.splitlines():
                        echo(line)
        if seen.ok:
            return ExitCode.OK
        is_refused = seen.failure is not None and seen.failure.phase is Phase.PERMIT
        return ExitCode.REFUSED if is_refused else ExitCode.FAILED

    raise typer.Exit(asyncio.run(run()))


def _echo_servers(tools: McpTools) -> None:
    for server in tools.servers.values():
        reason = f": {server.reason}" if server.reason else ""
        echo(f"{server.name}: {server.state}{reason} ({_describe_sandbox(server)})")
        _echo_tools(server, tools)


def _echo_tools(server: McpServer, tools: McpTools) -> None:
    rows = [
        (
            f"  {tool.name}",
            "quarantine" if tool.quarantine else ", ".join(sorted(tool.risk)),
            (tool.quarantine or tool.spec.description).strip().partition("\n")[0],
        )
        for tool in tools
        if tool.source == server.name
    ]
    if rows:
        echo_table(("  TOOL", "RISK", "DESCRIPTION"), rows)
    for tool_name, problem in server.problems.items():
        echo(f"  not used: {tool_name}: {problem}")


def _describe_sandbox(server: McpServer) -> str:
    sandbox = server.config.sandbox
    if not server.config.is_local:
        return "another host"
    if sandbox is None:
        return "NO SANDBOX"
    write = f"writes {', '.join(sandbox.write)}" if sandbox.write else "read-only"
    hosts = f"reaches {', '.join(sandbox.network)}" if sandbox.network else "no network"
    return f"sandbox: {write}, {hosts}"


def _server_to_json(server: McpServer, tools: McpTools) -> dict[str, Any]:
    info = server.info
    return {
        "name": server.name,
        "state": server.state,
        "reason": server.reason,
        "command": server.config.command,
        "url": server.config.url,
        "sandbox": server.config.sandbox,
        "trust": server.config.trust,
        "pins": server.config.pins,
        "protocol": server.protocol,
        "server_info": None if info is None else {"name": info.name, "version": info.version},
        "tools": [
            {
                "name": tool.name,
                "upstream_name": tool.source_name,
                "risk": sorted(tool.risk),
                "version": tool.version,
                "quarantine": tool.quarantine,
                "description": tool.spec.description,
            }
            for tool in tools
            if tool.source == server.name
        ],
        "problems": dict(server.problems),
    }
