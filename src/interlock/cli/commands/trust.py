"""`interlock trust`: which projects may bring settings, rules and skills, and the question whether one may.

Without a terminal nothing is asked, and nothing is loaded. A project that was trusted and is not any more, since its
files changed, stops a run: what it brings can only tighten, and without it a run would be freer than before.
"""

import os
import sys
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
from ..display.output import echo, echo_json, echo_table
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption

_EXITS = format_exit_codes(
    {
        ExitCode.OK: "trusted, or nothing to trust",
        ExitCode.USAGE: "bad usage, or a list that cannot be read",
        ExitCode.WAITING: "somebody has to say so: at a terminal, or with --yes",
        ExitCode.REFUSED: "the answer was no, or the project cannot be trusted",
    }
)

_NOT_TRUSTED = {
    ExitCode.WAITING: "Nothing was trusted. Say so at a terminal, or with `interlock trust --yes`.",
    ExitCode.REFUSED: "Nothing was trusted.",
}

ProjectOption: TypeAlias = Annotated[
    Path, typer.Option("--project", metavar="FOLDER", help="A folder of the project. Default: this one.")
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS)


@app.callback(invoke_without_command=True)
def trust(
    context: typer.Context,
    project: ProjectOption = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Trust it without a question.")] = False,
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
    if as_json:
        echo_json({"trusted": code is ExitCode.OK, "project": found})
    else:
        echo(f"{found.root}: {_describe_trusted(found)}" if isinstance(found, TrustedProject) else _NOT_TRUSTED[code])
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


def _describe_trusted(found: TrustedProject) -> str:
    return (
        f"trusted, {pluralize(len(found.files), 'file')}"
        if found.files
        else "it brings nothing, so there is nothing to trust"
    )


@app.command("list", epilog=_EXITS)
def list_projects(as_json: JsonOption = False) -> None:
    """List the projects that are trusted, and whether they still are what was trusted."""
    user_paths = find_user_paths()
    known = read_trust_records(user_paths)
    rows: list[dict[str, Any]] = [
        {"root": root, "at": known[root].at, "files": known[root].files, "now": _current_state(root)}
        for root in sorted(known)
    ]
    if as_json:
        echo_json(rows)
    elif not rows:
        echo("No project is trusted.")
    else:
        echo_table(("SINCE", "NOW", "PROJECT"), [(_format_day(row["at"]), row["now"], row["root"]) for row in rows])


def _current_state(root: str) -> str:
    if not os.path.isdir(root):
        return "gone"
    found = check_trust(Path(root), find_user_paths())
    return "trusted" if isinstance(found, TrustedProject) else found.kind


def _format_day(at: int) -> str:
    return format_utc(at)[:10]


@app.command(epilog=_EXITS)
def revoke(
    project: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Default: this project.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Trust a project no longer."""
    user_paths = find_user_paths()
    root = Path(os.path.realpath(project))
    target = find_project(root, user_paths)
    if not revoke_trust(target, user_paths):
        raise ConfigurationError(f"{target} is not trusted. `interlock trust list` lists what is.")
    if as_json:
        echo_json({"revoked": str(target)})
    else:
        echo(f"{target} is not trusted any more")


_MAX_SHOWN = 30


def resolve_project(
    start: Path, user_paths: UserPaths, *, ask: bool = True, inspect_only: bool = False
) -> TrustedProject:
    """Return what may be loaded from the project that `start` is in.

    With `ask`, a person at the terminal is asked. Else a notice says that the files of the project were ignored; if
    they were trusted before, `ConfigurationError` is raised, except with `inspect_only`.
    """
    found = check_trust(find_project(start, user_paths), user_paths)
    if isinstance(found, TrustedProject):
        return found
    if ask and found.kind != "refused" and is_interactive():
        echo_project(found)
        if confirm_trust():
            return trust_project(found, user_paths)
    if found.counted_before and not inspect_only:
        raise ConfigurationError(found.refusal)
    echo(found.notice, error=True)
    return TrustedProject(found.root)


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_trust() -> bool:
    """Ask for confirmation. The default is no."""
    try:
        return typer.confirm("Trust these files as they are now?", default=False, err=True)
    except typer.Abort:
        return False


def echo_project(project: UntrustedProject) -> None:
    changes = {change.path: change.what for change in project.changes}
    echo(f"The project {project.root} brings settings, rules or skills: {project.reason}.", error=True)
    lines = [
        *(
            f"  {file.path} ({file.size_bytes:,} bytes){_format_change(changes.get(file.path, ''))}"
            for file in project.files
        ),
        *(f"  {change.path}{_format_change(change.what)}" for change in project.changes if change.what == "gone"),
    ]
    for line in lines[:_MAX_SHOWN]:
        echo(line, error=True)
    if len(lines) > _MAX_SHOWN:
        echo(f"  ... and {len(lines) - _MAX_SHOWN:,} more; `interlock trust --json` has them all", error=True)
    echo("Read them first if others can write to this project: they steer what an agent does here.", error=True)


def _format_change(what: str) -> str:
    return f", {what}" if what else ""
