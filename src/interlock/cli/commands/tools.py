"""`interlock tools`: what a run in this folder could call, and what the policy says about it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ...domain.decision import Decision
from ...domain.errors import ConfigurationError
from ...domain.tool import CallContext, JsonObject, ResourceKind, ToolDefinition
from ...policy.engine.example_event import ToolDeclaration, example_event
from ...policy.files.policy_files import PolicyFiles
from ...tools.read_artifact import read_artifact
from ..config.policy_files import load_policy, require_valid
from ..config.project_trust import TrustedProject
from ..config.settings import Settings, load_settings
from ..config.user_paths import UserPaths, find_user_paths
from ..display.output import echo, echo_json, echo_table, style_verdict
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption
from ..session.tools import load_skill_tools, make_local_tools
from .trust import resolve_project

_EXITS = format_exit_codes({ExitCode.OK: "done", ExitCode.USAGE: "bad usage, or a file that is not in order"})
#: What a call names, to ask what a policy says about calls like it.
_EXAMPLE_ARGUMENTS: Mapping[ResourceKind, str] = {
    "path": "a-file",
    "host": "a-host.example",
    "command": "make",
    "folder": ".",
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS)


class _FolderTools(NamedTuple):
    """The settings of this folder, and the tools of a run in it."""

    settings: Settings
    policy: PolicyFiles
    tools: list[ToolDefinition]


@app.callback(invoke_without_command=True)
def tools(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the tools that a run in this folder would have.

    With what is decided about a usual call: on a file in this folder, or of a command that may change something. Rules
    may say more about a certain call: `interlock policy explain TOOL ARGS` shows it.
    """
    if context.invoked_subcommand is not None:
        return
    folder = _load_folder_tools()
    rows = [(tool, _evaluate_example(tool, folder)) for tool in folder.tools]
    if as_json:
        echo_json([{**_tool_to_json(tool), "decision": decision} for tool, decision in rows])
        return
    echo_table(
        ("TOOL", "RISK", "USUALLY", "WHAT IT DOES"),
        [
            (tool.name, ", ".join(sorted(tool.risk)), style_verdict(decision.verdict), _first_line(tool))
            for tool, decision in rows
        ],
    )


@app.command("show", epilog=_EXITS)
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the tool.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show what a tool declares, and the schema that a model gets."""
    folder = _load_folder_tools()
    found = {tool.name: tool for tool in folder.tools}
    if name not in found:
        raise ConfigurationError(f"There is no tool {name[:80]!r}. There are: {', '.join(found)}.")
    tool = found[name]
    decision = _evaluate_example(tool, folder)
    if as_json:
        echo_json({**_tool_to_json(tool), "schema": tool.spec.parameters_schema, "decision": decision})
        return
    echo(
        f"{tool.name}: {', '.join(sorted(tool.risk)) or 'no risk'}; usually ",
        style_verdict(decision.verdict),
        f": {decision.reason}",
    )
    for line in tool.spec.description.splitlines():
        echo(f"  {line}" if line.strip() else "")
    echo("arguments:")
    echo_json(tool.spec.parameters_schema)


def _load_folder_tools() -> _FolderTools:
    user_paths = find_user_paths()
    project = resolve_project(Path(), user_paths, ask=False, inspect_only=True)
    settings = load_settings(user_paths, project).settings
    policy = require_valid(load_policy(settings, user_paths, project, os.getcwd()))
    return _FolderTools(settings, policy, asyncio.run(_list_definitions(settings, user_paths, project)))


async def _list_definitions(settings: Settings, user_paths: UserPaths, project: TrustedProject) -> list[ToolDefinition]:
    local = make_local_tools(os.getcwd(), settings, user_paths)
    try:
        return [*local, read_artifact, *load_skill_tools(user_paths, project)]
    finally:
        await local.close()


def _evaluate_example(tool: ToolDefinition, folder: _FolderTools) -> Decision:
    arguments: JsonObject = {name: _EXAMPLE_ARGUMENTS[kind] for name, kind in tool.resources.items() if "." not in name}
    context = CallContext(run_id="run_tools", mode=folder.settings.mode, workspace=os.getcwd(), interactive=True)
    declared: ToolDeclaration = {
        "risk": tool.risk,
        "origin": tool.origin,
        "source": tool.source,
        "resources": tool.resources,
    }
    event = example_event(tool.name, arguments, context, **declared)
    return folder.policy.evaluate(event)


def _tool_to_json(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "risk": sorted(tool.risk),
        "read_only": tool.read_only,
        "origin": tool.origin,
        "version": tool.version,
        "description": tool.spec.description,
    }


def _first_line(tool: ToolDefinition) -> str:
    return tool.spec.description.strip().partition("\n")[0]
