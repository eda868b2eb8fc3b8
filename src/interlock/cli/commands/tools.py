"""`interlock tools`: what a run in this folder could call, and what the policy says about it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.decision import Decision
from ...domain.errors import ConfigurationError
from ...domain.tool import CallContext, JsonObject, ResourceKind, ToolDefinition
from ...policy.engine.example_event import ToolDeclaration, example_event
from ...rendering.text import describe_unknown
from ...tools.read_artifact import read_artifact
from ..config.policy_files import load_policy, require_valid
from ..config.settings import load_settings
from ..config.user_paths import find_user_paths
from ..display.output import echo, echo_json, echo_table, style_verdict
from ..exit_codes import format_exit_codes
from ..options import JsonOption, argument, create_app
from ..session.agent import load_skill_tools, make_local_tools
from ..session.trust import resolve_project

_EXITS = format_exit_codes(ok="done", usage="bad usage, or an invalid file")
#: What a call names, to ask what a policy says about calls like it.
_EXAMPLE_ARGUMENTS: Mapping[ResourceKind, str] = {
    "path": "a-file",
    "host": "a-host.example",
    "command": "make",
    "folder": ".",
}

app = create_app(_EXITS)


@app.callback(invoke_without_command=True)
def tools(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the tools that a run in this folder would have.

    With what is decided about a usual call: on a file in this folder, or of a command that may change something. Rules
    may say more about a certain call: `interlock policy explain TOOL ARGS` shows it.
    """
    if context.invoked_subcommand is not None:
        return
    found = asyncio.run(_evaluate_tools())
    if as_json:
        echo_json([{**_tool_to_json(tool), "decision": decision} for tool, decision in found])
        return
    echo_table(
        ("TOOL", "RISK", "DEFAULT", "DESCRIPTION"),
        [
            (
                tool.name,
                ", ".join(sorted(tool.risk)),
                style_verdict(decision.verdict),
                tool.spec.description.strip().partition("\n")[0],
            )
            for tool, decision in found
        ],
    )


@app.command("show", epilog=_EXITS)
def show_tool(name: Annotated[str, argument("NAME", "Name of the tool.")], as_json: JsonOption = False) -> None:
    """Show what a tool declares, and the schema that a model gets."""
    found = {tool.name: (tool, decision) for tool, decision in asyncio.run(_evaluate_tools())}
    if name not in found:
        raise ConfigurationError(describe_unknown("tool", name, found))
    tool, decision = found[name]
    if as_json:
        echo_json({**_tool_to_json(tool), "schema": tool.spec.parameters_schema, "decision": decision})
        return
    risk = ", ".join(sorted(tool.risk)) or "no risk"
    echo(f"{tool.name}: {risk}; default: ", style_verdict(decision.verdict), f": {decision.reason}")
    for line in tool.spec.description.splitlines():
        echo(f"  {line}" if line.strip() else "")
    echo("arguments:")
    echo_json(tool.spec.parameters_schema)


async def _evaluate_tools() -> list[tuple[ToolDefinition, Decision]]:
    """Return the tools of a run in this folder, each with the decision about a usual call."""
    user_paths, folder = find_user_paths(), os.getcwd()
    project = resolve_project(Path(), user_paths, ask=False, inspect_only=True)
    settings = load_settings(user_paths, project).settings
    policy = require_valid(load_policy(settings, user_paths, project, folder))
    context = CallContext(run_id="run_tools", mode=settings.mode, workspace=folder, interactive=True)

    def evaluate(tool: ToolDefinition) -> Decision:
        named: JsonObject = {name: _EXAMPLE_ARGUMENTS[kind] for name, kind in tool.resources.items() if "." not in name}
        declared: ToolDeclaration = {
            "risk": tool.risk,
            "origin": tool.origin,
            "source": tool.source,
            "resources": tool.resources,
        }
        return policy.evaluate(example_event(tool.name, named, context, **declared))

    local = make_local_tools(folder, settings, user_paths)
    try:
        definitions = [*local, read_artifact, *load_skill_tools(user_paths, project)]
        return [(tool, evaluate(tool)) for tool in definitions]
    finally:
        await local.close()


def _tool_to_json(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "risk": sorted(tool.risk),
        "read_only": tool.read_only,
        "origin": tool.origin,
        "version": tool.version,
        "description": tool.spec.description,
    }
