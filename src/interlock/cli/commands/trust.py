"""`interlock trust`: which projects may bring settings, rules and skills."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...rendering.text import pluralize
from ...rendering.times import format_utc
from ..config.project_trust import (
    TrustedProject,
    UntrustedProject,
    check_trust,
    find_project,
    read_trust_records,
    revoke_trust,
    trust_project,
)
from ..config.user_paths import UserPaths, find_user_paths
from ..display.output import echo_list, echo_result
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption, create_app
from ..session.trust import confirm_trust, echo_project, is_interactive

_EXITS = format_exit_codes(
    ok="trusted, or nothing to trust",
    usage="bad usage, or a list that cannot be read",
    waiting="confirmation is required: at a terminal, or with --yes",
    refused="declined, or the project cannot be trusted",
)
_NOT_TRUSTED = {
    ExitCode.WAITING: "Nothing was trusted. Confirm at a terminal, or pass --yes.",
    ExitCode.REFUSED: "Nothing was trusted.",
}

ProjectOption: TypeAlias = Annotated[
    Path, typer.Option("--project", metavar="DIR", help="Directory in the project. Default: this one.")
]

app = create_app(_EXITS)


@app.callback(invoke_without_command=True)
def trust(
    context: typer.Context,
    project: ProjectOption = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Trust without a confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Trust a project, or see what it brings.

    Nothing from a project directory (settings, policy and skills in its folder .interlock) is loaded before it is
    trusted. When one of these files changes, it is asked again.
    """
    if context.invoked_subcommand is not None:
        return
    user_paths = find_user_paths()
    found, code = check_trust(find_project(project, user_paths), user_paths), ExitCode.OK
    if isinstance(found, UntrustedProject):
        if not as_json:
            echo_project(found)
        found, code = _decide_trust(found, user_paths, yes=yes, ask=not as_json and is_interactive())
    line = _NOT_TRUSTED.get(code, "")
    if isinstance(found, TrustedProject):
        brings = f"trusted, {pluralize(len(found.files), 'file')}"
        line = f"{found.root}: {brings if found.files else 'it brings nothing, so there is nothing to trust'}"
    echo_result(as_json, {"trusted": code is ExitCode.OK, "project": found}, line)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _decide_trust(
    found: UntrustedProject, user_paths: UserPaths, *, yes: bool, ask: bool
) -> tuple[TrustedProject | UntrustedProject, ExitCode]:
    if found.kind == "refused":
        return found, ExitCode.REFUSED
    if yes or (ask and confirm_trust()):
        return trust_project(found, user_paths), ExitCode.OK
    return found, ExitCode.REFUSED if ask else ExitCode.WAITING


@app.command("list", epilog=_EXITS)
def list_projects(as_json: JsonOption = False) -> None:
    """List the projects that are trusted, and whether they still are what was trusted."""
    known = read_trust_records(find_user_paths())
    rows: list[dict[str, Any]] = [
        {"root": root, "at": known[root].at, "files": known[root].files, "now": _current_state(root)}
        for root in sorted(known)
    ]
    shown = [(format_utc(row["at"])[:10], row["now"], row["root"]) for row in rows]
    echo_list(as_json, rows, ("SINCE", "NOW", "PROJECT"), shown, empty="No trusted projects.")


def _current_state(root: str) -> str:
    if not os.path.isdir(root):
        return "gone"
    found = check_trust(Path(root), find_user_paths())
    return "trusted" if isinstance(found, TrustedProject) else found.kind


@app.command(epilog=_EXITS)
def revoke(
    project: Annotated[Path, typer.Argument(metavar="[DIR]", help="Project to revoke. Default: this one.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Trust a project no longer."""
    user_paths = find_user_paths()
    target = find_project(Path(os.path.realpath(project)), user_paths)
    if not revoke_trust(target, user_paths):
        raise ConfigurationError(f"{target} is not trusted. `interlock trust list` lists trusted projects.")
    echo_result(as_json, {"revoked": str(target)}, f"{target} is no longer trusted")
