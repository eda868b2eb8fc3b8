"""The MCP servers of a command: where their file is, and where their pins are kept."""

from pathlib import Path
from typing import TYPE_CHECKING

from ... import lazy_module
from ...domain.errors import ConfigurationError
from ..config.user_paths import UserPaths, make_private_folder

if TYPE_CHECKING:
    from ... import mcp
else:
    mcp = lazy_module("interlock.mcp")


def find_servers_file(given: Path | None, user_paths: UserPaths) -> Path:
    """Return the servers file: the given one, or `mcp.toml` of the user."""
    if given is not None:
        return given
    default = None if user_paths.config is None else user_paths.config / "mcp.toml"
    if default is None or not default.is_file():
        place = f" {default} does not exist." if default is not None else ""
        raise ConfigurationError(f"There are no MCP servers.{place} Name a file with --servers. Nothing was started.")
    return default


def open_mcp_tools(given: Path | None, workspace: str | Path, user_paths: UserPaths) -> "mcp.McpTools":
    """Return the tools of the servers, with pins in the state folder, and Interlock's own files out of reach."""
    state = None if user_paths.state is None else make_private_folder(user_paths.state)
    tools = mcp.McpTools.from_file(find_servers_file(given, user_paths), workspace=workspace, state=state)
    tools.protect_paths(user_paths.own_paths)
    return tools
