"""Policy files of commands: those that are named with options, and those that hold for a run here, one per layer."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...policy.files.places import PolicyFileError, Problem
from ...policy.files.policy_files import PolicyFiles
from ...policy.files.source import read_file
from ..exit_codes import ExitCode
from .places import MANAGED_POLICY, Places
from .project import FOLDER
from .settings import Settings
from .trusted import Trusted

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


PROJECT_POLICY = f"{FOLDER}/policy.yaml"


def policy_here(settings: Settings, places: Places, project: Trusted, workspace: str) -> PolicyFiles:
    """What is not in order denies everything; see `PolicyFiles.problems`."""
    return PolicyFiles(
        managed=MANAGED_POLICY if os.path.lexists(MANAGED_POLICY) else None,
        user=_user_policy(settings, places),
        project=project.path(PROJECT_POLICY) or None,
        workspace=workspace,
        read=partial(_content, project),
    )


def _content(project: Trusted, path: str) -> bytes:
    """What was looked at when the project was trusted is what counts, at every reading."""
    if path != project.path(PROJECT_POLICY):
        return read_file(path)
    try:
        return project.content(PROJECT_POLICY) or b""
    except PolicyFileError:
        raise
    except ConfigurationError:
        reason = "it is not what was trusted any more; `interlock trust` shows it and trusts it again"
        raise PolicyFileError([Problem(path, 0, reason)]) from None


def _user_policy(settings: Settings, places: Places) -> Path | None:
    """A file that was named has to be there; the usual one may be missing."""
    if settings.policy:
        named = Path(os.path.expanduser(settings.policy))
        if not named.exists():
            raise ConfigurationError(
                f"The policy file {named} does not exist. `interlock config set policy` names another."
            )
        return named
    usual = places.policy_file if places.config is not None else None
    return usual if usual is not None and os.path.lexists(usual) else None
