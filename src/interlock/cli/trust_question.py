"""The question whether a project is trusted, at a terminal. Without one nothing is asked, and nothing is loaded."""

import sys
from pathlib import Path

import typer

from .places import Places
from .project import find_root
from .show import say
from .trust import Trusted, Untrusted, remember, trusted_files

_MAX_SHOWN = 30


def files_of_project(start: Path, places: Places, *, ask: bool = True) -> Trusted:
    """What may be loaded from the project that `start` is in.

    A person who is there is asked, if `ask`. Else one line says that the files of the project were ignored.
    """
    found = trusted_files(find_root(start), places)
    if isinstance(found, Trusted):
        return found
    if ask and found.kind != "refused" and somebody_is_there():
        show_project(found)
        if ask_for_trust():
            return remember(found, places)
    say(found.notice, error=True)
    return Trusted(found.root)


def somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_for_trust() -> bool:
    """No is the answer of whoever says nothing."""
    try:
        return typer.confirm("Trust these files as they are now?", default=False, err=True)
    except typer.Abort:
        return False


def show_project(project: Untrusted) -> None:
    changes = {change.path: change.what for change in project.changes}
    say(f"The project {project.root} brings settings, rules or skills: {project.reason}.", error=True)
    lines = [
        *(f"  {file.path} ({file.size_bytes:,} bytes){_mark(changes.get(file.path, ''))}" for file in project.files),
        *(f"  {change.path}{_mark(change.what)}" for change in project.changes if change.what == "gone"),
    ]
    for line in lines[:_MAX_SHOWN]:
        say(line, error=True)
    if len(lines) > _MAX_SHOWN:
        say(f"  ... and {len(lines) - _MAX_SHOWN:,} more; `interlock trust --json` has them all", error=True)
    say("Read them first if others can write to this project: they steer what an agent does here.", error=True)


def _mark(what: str) -> str:
    return f", {what}" if what else ""
