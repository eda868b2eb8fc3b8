"""`interlock gateway`: one MCP server in front of many, for any MCP client."""

import asyncio
import os
import shutil
import socket
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ... import __version__, lazy_module
from ...domain.errors import ConfigurationError
from ...mcp.gateway.client_config import ClientName, render_client_config
from ...mcp.gateway.first_answers import AnswerStore, FirstAnswers
from ...mcp.gateway.stdio_lines import open_stdio
from ...policy.files.values import parse_duration
from ...storage.file_artifacts import FileArtifacts
from ..config.logs import find_run_files, require_log_file
from ..config.policy_files import load_policy, require_valid
from ..config.settings import SETTING_TYPES, load_settings, parse_setting
from ..config.user_paths import find_user_paths, login_name
from ..display.output import echo
from ..options import LogOption, ModeOption, PolicyOption, WorkspaceOption, collect_options, create_app, option
from ..session.mcp_tools import find_servers_file, open_mcp_tools
from ..session.policy_reload import reload_on_hangup
from ..session.trust import resolve_project

# `--print-config` needs none of these, and they take seconds of CPU to load.
if TYPE_CHECKING:
    from ...gate import gate as gates
    from ...mcp.gateway import asking
    from ...mcp.gateway import gateway as gateways
    from ...mcp.gateway import http as streaming
    from ...storage.sqlite import log as logs
else:
    gates = lazy_module("interlock.gate.gate")
    asking = lazy_module("interlock.mcp.gateway.asking")
    gateways = lazy_module("interlock.mcp.gateway.gateway")
    streaming = lazy_module("interlock.mcp.gateway.http")
    logs = lazy_module("interlock.storage.sqlite.log")

_EXITS = "Exit codes: 0 the client left, or a signal; 2 the gateway could not start."
_MAX_HOLD_SECONDS = 3_600.0

app = create_app()


@app.command(epilog=_EXITS)
def gateway(  # noqa: PLR0913 - one for each option
    *,
    servers: Annotated[
        Path | None,
        option("File with the MCP servers. Default: mcp.toml in the config directory.", metavar="FILE"),
    ] = None,
    policy: PolicyOption = None,
    mode: ModeOption = None,
    workspace: WorkspaceOption = None,
    log: LogOption = None,
    http: Annotated[
        str | None,
        option("Serve HTTP at this address instead of standard input and output.", metavar="ADDR:PORT"),
    ] = None,
    hold: Annotated[
        str, option("How long a call waits for approval before the client gets PENDING. Default: 50s.", metavar="TIME")
    ] = "50s",
    elicit: Annotated[
        Literal["off", "claim", "trusted"],
        option(
            "Ask the client's user: `off`, `claim` (counts where a rule has `approver: client`) or `trusted` (counts "
            "like any person). Default: claim."
        ),
    ] = "claim",
    principal: Annotated[
        str | None, option("Who the client acts for. Default: the user of this process.", metavar="NAME")
    ] = None,
    print_config: Annotated[
        ClientName | None, option("Print what to add to the settings of this client, and exit.")
    ] = None,
) -> None:
    """Serve the tools of MCP servers to an MCP client, under policy, with approvals and a log.

    Without --http one client is served over standard input and output, as clients start their servers. Any number of
    gateways share a log. People answer with `interlock approvals`, in the console or over REST.
    """
    if print_config is not None:
        given = {"servers": servers, "policy": policy, "mode": mode, "workspace": workspace, "log": log}
        options = {**collect_options(**given), "hold": hold, "elicit": elicit, "principal": principal or ""}
        _print_config(print_config, options, http)
        return
    if find_spec("mcp") is None:
        raise ConfigurationError("The gateway needs more than the command: pip install 'interlock[mcp]'")
    user_paths = find_user_paths()
    folder = Path(os.path.realpath(workspace or Path()))
    if not folder.is_dir():
        raise ConfigurationError(f"{workspace} is not a folder. `--workspace` names the folder to work in.")
    project = resolve_project(folder, user_paths, ask=False)
    chosen = {
        name: parse_setting(name, SETTING_TYPES[name], text, f"--{name}")
        for name, text in collect_options(policy=policy, mode=mode).items()
    }
    settings = load_settings(user_paths, project, options=chosen).settings
    files = find_run_files(log, user_paths)
    if files.log.exists():
        require_log_file(str(files.log))
    servers_file = find_servers_file(servers, user_paths)
    hold_seconds = _parse_hold(hold)
    rules = require_valid(load_policy(settings, user_paths, project, str(folder)))
    place = None if http is None else _parse_address(http)
    if log is None:
        user_paths.make_state_folder()

    who = principal or login_name()
    key_file, answers_file = f"{files.log}.gateway", f"{files.log}.gateway.answers"

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            connection = None
            if place is None:
                setup = (servers_file.absolute(), folder, who, settings.mode, rules.digest, *_list_versions())
                first = FirstAnswers(AnswerStore(Path(answers_file), map(str, setup)))
                connection = await stack.enter_async_context(open_stdio(first))
                await asyncio.to_thread(_load_modules)
            tools = open_mcp_tools(servers_file, folder, user_paths)
            tools.protect_paths((key_file, answers_file))
            log = await stack.enter_async_context(logs.SqliteLog(files.log))
            gate = gates.Gate(
                log=log,
                artifacts=FileArtifacts(files.artifacts),
                policy=rules,
                mode=settings.mode,
                workspace=folder,
            )
            await stack.enter_async_context(gate)
            ask_options = asking.AskOptions(hold_seconds=hold_seconds, elicit=elicit)
            served = gateways.Gateway(gate, tools, principal=who, options=ask_options, key_file=key_file)
            await stack.enter_async_context(served)
            stack.enter_context(reload_on_hangup(rules))
            if place is None:
                await served.serve_stdio(connection)
            else:
                sock = stack.enter_context(_listen(*place))
                application = await stack.enter_async_context(streaming.open_http(served.server, sock.getsockname()[1]))
                echo(f"The gateway serves {streaming.describe_address(sock)}. Ctrl-C stops it.", error=True)
                await streaming.serve_http(application, sock)

    asyncio.run(serve())


def _print_config(client: ClientName, options: dict[str, str], http: str | None) -> None:
    defaults = {"hold": "50s", "elicit": "claim", "principal": ""}
    arguments = [
        part for name, value in options.items() if value != defaults.get(name) for part in (f"--{name}", value)
    ]
    config = render_client_config(client, _find_program(), arguments, http)
    echo(f"For {config.where}:", error=True)
    for line in config.text.splitlines():
        echo(line)


def _list_versions() -> list[str]:
    """Return the versions of everything that answers a client."""
    return [__version__, sys.version, *(version(name) for name in ("mcp", "mcp-types", "pydantic"))]


def _load_modules() -> None:
    """Load what the first answers do without."""
    for name in (gates, logs, gateways):
        import_module(name.__name__)


def _parse_hold(text: str) -> float:
    seconds = 0.0 if text.strip() in ("0", "0s") else parse_duration(text) or 0.0
    if seconds > _MAX_HOLD_SECONDS:
        raise ConfigurationError(f"--hold: expected 0s to {_MAX_HOLD_SECONDS:g}s; found {text}.")
    return seconds


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) >= 1 << 16:
        raise ConfigurationError(f"--http: expected ADDR:PORT, such as 127.0.0.1:8931; found {text!r}.")
    try:
        is_local = ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise ConfigurationError(
            f"--http: {host} can be reached from elsewhere, and the gateway does not authenticate clients. Expected "
            "127.0.0.1 or ::1. `interlock serve` serves a gateway with keys and sign-in."
        )
    return host, int(port)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise ConfigurationError(
            f"--http: cannot listen on {host} port {port}: {reason}. Nothing was served."
        ) from None


def _find_program() -> list[str]:
    """Return how a client starts this program: it may have another PATH."""
    own = Path(sys.argv[0]).absolute()
    if own.name == "interlock" and own.exists():
        return [str(own)]
    return [shutil.which("interlock") or "interlock"]
