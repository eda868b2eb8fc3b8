"""What the commands of `interlock policy` share: options, exit codes, and how they say that something is wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup

from ..domain.errors import InterlockError
from ..policy.files.policy_files import PolicyFiles
from ..policy.files.source import PolicyFileError, Problem
from .show import say

NO, CANNOT = 1, 2
EXITS = "Exit codes: 0 fine; 1 refused, wrong, or flips with --fail-on-flip; 2 bad usage or a file that cannot be read."

File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="A policy file, YAML or TOML.", show_default=False)
]
Managed: TypeAlias = Annotated[Path | None, typer.Option(help="The policy file of the organisation.")]
User: TypeAlias = Annotated[Path | None, typer.Option(help="The policy file of the user.")]
Project: TypeAlias = Annotated[Path | None, typer.Option(help="The policy file of the project.")]
Session: TypeAlias = Annotated[Path | None, typer.Option(help="The policy file of the session.")]
LayerName: TypeAlias = Annotated[
    Literal["managed", "user", "project", "session"], typer.Option(help="Whose file it is.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: the result as JSON.")]


class Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """What went wrong is said in one place: what happened, where, and what to do."""
        try:
            return super().invoke(ctx)
        except PolicyFileError as error:
            say_problems(error.problems)
        except InterlockError as error:
            say(f"interlock: {error}", error=True)
        raise typer.Exit(CANNOT)


def in_order(files: PolicyFiles) -> PolicyFiles:
    """The policy; `PolicyFileError` when one of its files is not in order."""
    if files.problems:
        raise PolicyFileError(files.problems)
    return files


def require_one(*files: Path | None) -> None:
    if not any(files):
        raise typer.BadParameter("name a policy file: --user, --project, --managed or --session")


def one_of(given: Path | None, user: Path | None) -> Path | None:
    if given is not None and user is not None:
        raise typer.BadParameter("the file of the user is named twice")
    return given or user


def say_problems(problems: Sequence[Problem], before: str = "") -> None:
    for problem in problems:
        say(f"{before}{problem}", error=True)
