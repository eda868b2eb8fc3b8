"""`interlock trust`: which projects may bring settings, rules and skills, and the question whether one may.

Without a terminal nothing is asked, and nothing is loaded. A project that was trusted and is not any more, since its
files changed, stops a run: what it brings can only tighten, and without it a run would be freer than before.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ..config.places import Places, find_places
from ..config.trusted import Trusted, Untrusted, find_project, forget, remember, trusted_files, trusted_projects
from ..display.output import count, say, say_json, say_table
from ..exit_codes import ExitCode, exits
from ..options import Json

_EXITS = exits(
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

Folder: TypeAlias = Annotated[
    Path, typer.Option("--project", metavar="FOLDER", help="A folder of the project. Default: this one.")
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS)


@app.callback(invoke_without_command=True)
def trust(
    context: typer.Context,
    project: Folder = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Trust it without a question.")] = False,
    as_json: Json = False,
) -> None:
    """Trust a project, or see what it brings.

    Nothing from a project directory (settings, policy and skills in its folder .interlock) is loaded before it is
    trusted. When one of these files changes, it is asked again.
    """
    if context.invoked_subcommand is not None:
        return
    places = find_places()
    found, code = trusted_files(find_project(project, places), places), ExitCode.OK
    if isinstance(found, Untrusted):
        if not as_json:
            show_project(found)
        found, code = _decided(found, places, yes=yes, ask=not as_json and somebody_is_there())
    if as_json:
        say_json({"trusted": code is ExitCode.OK, "project": found})
    else:
        say(f"{found.root}: {_what(found)}" if isinstance(found, Trusted) else _NOT_TRUSTED[code])
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _decided(found: Untrusted, places: Places, *, yes: bool, ask: bool) -> tuple[Trusted | Untrusted, ExitCode]:
    if found.kind == "refused":
        return found, ExitCode.REFUSED
    if yes or (ask and ask_for_trust()):
        return remember(found, places), ExitCode.OK
    return found, ExitCode.REFUSED if ask else ExitCode.WAITING


def _what(found: Trusted) -> str:
    return (
        f"trusted, {count(len(found.files), 'file')}"
        if found.files
        else "it brings nothing, so there is nothing to trust"
    )


@app.command("list", epilog=_EXITS)
def list_projects(as_json: Json = False) -> None:
    """List the projects that are trusted, and whether they still are what was trusted."""
    places = find_places()
    known = trusted_projects(places)
    rows: list[dict[str, Any]] = [
        {"root": root, "at": known[root].at, "files": known[root].files, "now": _now(root)} for root in sorted(known)
    ]
    if as_json:
        say_json(rows)
    elif not rows:
        say("No project is trusted.")
    else:
        say_table(("SINCE", "NOW", "PROJECT"), [(_day(row["at"]), row["now"], row["root"]) for row in rows])


def _now(root: str) -> str:
    if not os.path.isdir(root):
        return "gone"
    found = trusted_files(Path(root), find_places())
    return "trusted" if isinstance(found, Trusted) else found.kind


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d")


@app.command(epilog=_EXITS)
def revoke(
    project: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Default: this project.")] = Path(),
    as_json: Json = False,
) -> None:
    """Trust a project no longer."""
    places = find_places()
    root = Path(os.path.realpath(project))
    target = find_project(root, places)
    if not forget(target, places):
        raise ConfigurationError(f"{target} is not trusted. `interlock trust list` lists what is.")
    if as_json:
        say_json({"revoked": str(target)})
    else:
        say(f"{target} is not trusted any more")


_MAX_SHOWN = 30


def files_of_project(start: Path, places: Places, *, ask: bool = True, only_look: bool = False) -> Trusted:
    """What may be loaded from the project that `start` is in.

    A person who is there is asked, if `ask`. Else one line says that the files of the project were ignored; if they
    counted before, `ConfigurationError` says that nothing goes on without them, except for who wants to `only_look`.
    """
    found = trusted_files(find_project(start, places), places)
    if isinstance(found, Trusted):
        return found
    if ask and found.kind != "refused" and somebody_is_there():
        show_project(found)
        if ask_for_trust():
            return remember(found, places)
    if found.counted_before and not only_look:
        raise ConfigurationError(found.refusal)
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
