"""`interlock tools`: what a run in this folder could call, and what the policy says about it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..domain.decision import Decision
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject, ResourceKind, Situation, ToolDefinition
from ..local import LocalTools
from ..policy.files.policy_files import PolicyFiles
from ..policy.hypothetical import hypothetical
from .exit_codes import ExitCode, exits
from .options import Json
from .places import find_places
from .policy_files import in_order, policy_here
from .settings import Settings, load_settings
from .show import say, say_json, say_table, verdict
from .trust import files_of_project

_EXITS = exits({ExitCode.OK: "done", ExitCode.USAGE: "bad usage, or a file that is not in order"})
#: What a call names, to ask what a policy says about calls like it.
_EXAMPLES: Mapping[ResourceKind, str] = {"path": "a-file", "host": "a-host.example", "command": "make", "folder": "."}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS)


@app.callback(invoke_without_command=True)
def tools(context: typer.Context, as_json: Json = False) -> None:
    """Show the tools that a run in this folder would have.

    With what is decided about a usual call: on a file in this folder, or of a command that may change something. Rules
    may say more about a certain call: `interlock policy explain TOOL ARGS` shows it.
    """
    if context.invoked_subcommand is not None:
        return
    settings, policy = _here()
    rows = [(tool, _decision(tool, policy, settings)) for tool in _definitions(settings)]
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
    settings, policy = _here()
    found = {tool.name: tool for tool in _definitions(settings)}
    if name not in found:
        raise ConfigurationError(f"There is no tool {name[:80]!r}. There are: {', '.join(found)}.")
    tool = found[name]
    decision = _decision(tool, policy, settings)
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


def _here() -> tuple[Settings, PolicyFiles]:
    places = find_places()
    project = files_of_project(Path(), places, ask=False)
    settings = load_settings(places, project).settings
    return settings, in_order(policy_here(settings, places, project, os.getcwd()))


def _definitions(settings: Settings) -> list[ToolDefinition]:
    async def define() -> list[ToolDefinition]:
        local = LocalTools(Path.cwd(), network=settings.network, outside=settings.outside)
        try:
            return list(local)
        finally:
            await local.close()

    return asyncio.run(define())


def _decision(tool: ToolDefinition, policy: PolicyFiles, settings: Settings) -> Decision:
    arguments: JsonObject = {name: _EXAMPLES[kind] for name, kind in tool.resources.items() if "." not in name}
    here = Situation(run_id="run_tools", mode=settings.mode, workspace=os.getcwd(), interactive=True)
    event = hypothetical(
        tool.name, arguments, here, risk=tool.risk, origin=tool.origin, source=tool.source, resources=tool.resources
    )
    return policy.evaluate(event)


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
