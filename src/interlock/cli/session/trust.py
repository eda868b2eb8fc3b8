"""The question whether a project may bring settings, rules and skills.

Without a terminal nothing is asked, and nothing is loaded. A project that was trusted and is not any more, since its
files changed, stops a run: what it brings can only tighten, and without it a run would be freer than before.
"""

import sys
from pathlib import Path

import typer

from ...domain.errors import ConfigurationError
from ..config.project_trust import TrustedProject, UntrustedProject, check_trust, find_project, trust_project
from ..config.user_paths import UserPaths
from ..display.output import echo

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
    """Return True if a person can be asked here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_trust() -> bool:
    """Ask for confirmation. The default is no."""
    try:
        return typer.confirm("Trust these files as they are now?", default=False, err=True)
    except typer.Abort:
        return False


def echo_project(project: UntrustedProject) -> None:
    """Print the files that a project brings, and how they changed."""
    changes = {change.path: f", {change.what}" for change in project.changes}
    echo(f"The project {project.root} brings settings, rules or skills: {project.reason}.", error=True)
    lines = [
        *(f"  {file.path} ({file.size_bytes:,} bytes){changes.get(file.path, '')}" for file in project.files),
        *(f"  {change.path}, gone" for change in project.changes if change.what == "gone"),
    ]
    for line in lines[:_MAX_SHOWN]:
        echo(line, error=True)
    if len(lines) > _MAX_SHOWN:
        echo(f"  ... and {len(lines) - _MAX_SHOWN:,} more; `interlock trust --json` has them all", error=True)
    echo("Read them first if others can write to this project: they steer what an agent does here.", error=True)
