"""`interlock tools`: what a run in this folder could call, and what the policy says about it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ...domain.decision import Decision
from ...domain.errors import ConfigurationError
from ...domain.tool import JsonObject, ResourceKind, Situation, ToolDefinition
from ...policy.analysis.example_event import Declared, hypothetical
from ...policy.files.policy_files import PolicyFiles
from ...tools.read_artifact import read_artifact
from ..config.places import Places, find_places
from ..config.policy_files import in_order, policy_here
from ..config.settings import Settings, load_settings
from ..config.trusted import Trusted
from ..display.output import say, say_json, say_table, verdict
from ..exit_codes import ExitCode, exits
from ..options import Json
from ..session.tools import local_tools, skill_tools
from .trust import files_of_project

_EXITS = exits({ExitCode.OK: "done", ExitCode.USAGE: "bad usage, or a file that is not in order"})
#: What a call names, to ask what a policy says about calls like it.
_EXAMPLES: Mapping[ResourceKind, str] = {"path": "a-file", "host": "a-host.example", "command": "make", "folder": "."}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS)


class _Here(NamedTuple):
    """What holds in this folder, and what a run in it could call."""

    settings: Settings
    policy: PolicyFiles
    tools: list[ToolDefinition]


@app.callback(invoke_without_command=True)
def tools(context: typer.Context, as_json: Json = False) -> None:
    """Show the tools that a run in this folder would have.

    With what is decided about a usual call: on a file in this folder, or of a command that may change something. Rules
    may say more about a certain call: `interlock policy explain TOOL ARGS` shows it.
    """
    if context.invoked_subcommand is not None:
        return
    here = _here()
    rows = [(tool, _decision(tool, here)) for tool in here.tools]
    if as_json:
        say_json([{**_described(tool), "decision": decision} for tool, decision in rows])
        return
    say_table(
        ("TOOL", "RISK", "USUALLY", "WHAT IT DOES"),
        [
            (tool.name, ", ".join(sorted(tool.risk)), verdict(decision.verdict), _first_line(tool))
            for tool, decision in rows
        ],
    )


@app.command("show", epilog=_EXITS)
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the tool.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what a tool declares, and the schema that a model gets."""
    here = _here()
    found = {tool.name: tool for tool in here.tools}
    if name not in found:
        raise ConfigurationError(f"There is no tool {name[:80]!r}. There are: {', '.join(found)}.")
    tool = found[name]
    decision = _decision(tool, here)
    if as_json:
        say_json({**_described(tool), "schema": tool.spec.parameters_schema, "decision": decision})
        return
    say(
        f"{tool.name}: {', '.join(sorted(tool.risk)) or 'no risk'}; usually ",
        verdict(decision.verdict),
        f": {decision.reason}",
    )
    for line in tool.spec.description.splitlines():
        say(f"  {line}" if line.strip() else "")
    say("arguments:")
    say_json(tool.spec.parameters_schema)


def _here() -> _Here:
    places = find_places()
    project = files_of_project(Path(), places, ask=False, only_look=True)
    settings = load_settings(places, project).settings
    policy = in_order(policy_here(settings, places, project, os.getcwd()))
    return _Here(settings, policy, asyncio.run(_definitions(settings, places, project)))


async def _definitions(settings: Settings, places: Places, project: Trusted) -> list[ToolDefinition]:
    local = local_tools(os.getcwd(), settings, places)
    try:
        return [*local, read_artifact, *skill_tools(places, project)]
    finally:
        await local.close()


def _decision(tool: ToolDefinition, here: _Here) -> Decision:
    arguments: JsonObject = {name: _EXAMPLES[kind] for name, kind in tool.resources.items() if "." not in name}
    situation = Situation(run_id="run_tools", mode=here.settings.mode, workspace=os.getcwd(), interactive=True)
    declared: Declared = {
        "risk": tool.risk,
        "origin": tool.origin,
        "source": tool.source,
        "resources": tool.resources,
    }
    event = hypothetical(tool.name, arguments, situation, **declared)
    return here.policy.evaluate(event)


def _described(tool: ToolDefinition) -> dict[str, Any]:
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
