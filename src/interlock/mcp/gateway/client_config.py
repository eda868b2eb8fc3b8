"""What to add to the settings of an MCP client so that it uses the gateway."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

ClientName: TypeAlias = Literal["claude", "codex", "gemini", "opencode", "cursor"]
_NAME = "interlock"
#: How long a client waits for a gateway to start. Some wait 5 seconds only, and then work without its tools.
_START_SECONDS = 60


class ClientConfig(NamedTuple):
    """Settings to add."""

    #: The file that they belong into.
    where: str
    text: str


def render_client_config(
    client: ClientName, program: Sequence[str], arguments: Sequence[str], http: str | None
) -> ClientConfig:
    """Return what to add, and where.

    Args:
        client: The client.
        program: The program `interlock`, as an absolute path.
        arguments: The options of `interlock gateway`.
        http: The address that a gateway serves at, if the client is to connect to it.
    """
    command = [*program, "gateway", *arguments]
    return _RENDERERS[client](command, "" if http is None else f"http://{http}/mcp")


def _render_claude(command: list[str], url: str) -> ClientConfig:
    server = {"type": "http", "url": url} if url else {"command": command[0], "args": command[1:]}
    return ClientConfig(".mcp.json of a project, or FILE of `claude --mcp-config FILE`", _servers_json(server))


def _render_codex(command: list[str], url: str) -> ClientConfig:
    # Without `required` its first request goes out before the gateway is ready. Without the approval mode it asks by
    # itself about every call, before Interlock does.
    lines = [
        f"[mcp_servers.{_NAME}]",
        *([f"url = {_quote(url)}"] if url else [f"command = {_quote(command[0])}", f"args = {_quote(command[1:])}"]),
        "required = true",
        f"startup_timeout_sec = {_START_SECONDS}",
        'default_tools_approval_mode = "approve"',
    ]
    return ClientConfig("~/.codex/config.toml", "\n".join(lines))


def _render_gemini(command: list[str], url: str) -> ClientConfig:
    server = {"httpUrl": url} if url else {"command": command[0], "args": command[1:]}
    # Without it Gemini CLI asks by itself about every call, before Interlock does.
    text = _servers_json({**server, "trust": True})
    return ClientConfig("~/.gemini/settings.json, or .gemini/settings.json of a project", text)


def _render_opencode(command: list[str], url: str) -> ClientConfig:
    server = {"type": "remote", "url": url} if url else {"type": "local", "command": command}
    document = {"mcp": {_NAME: {**server, "enabled": True, "timeout": _START_SECONDS * 1000}}}
    return ClientConfig("opencode.json", json.dumps(document, indent=2))


def _render_cursor(command: list[str], url: str) -> ClientConfig:
    server = {"url": url} if url else {"command": command[0], "args": command[1:]}
    return ClientConfig("~/.cursor/mcp.json, or .cursor/mcp.json of a project", _servers_json(server))


def _servers_json(server: Mapping[str, Any]) -> str:
    return json.dumps({"mcpServers": {_NAME: server}}, indent=2)


def _quote(value: str | list[str]) -> str:
    """Return a text or a list as TOML: its JSON form is valid there."""
    return json.dumps(value, ensure_ascii=False)


_RENDERERS: Mapping[ClientName, Callable[[list[str], str], ClientConfig]] = {
    "claude": _render_claude,
    "codex": _render_codex,
    "gemini": _render_gemini,
    "opencode": _render_opencode,
    "cursor": _render_cursor,
}
