"""What the commands of `interlock policy` share: options and exit codes."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ..policy.files.policy_files import PolicyFiles
from ..policy.files.source import PolicyFileError
from .exit_codes import ExitCode

NO, CANNOT = ExitCode.FAILED, ExitCode.USAGE
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
