"""Policy files of commands: those named with options, and those that apply to a run here, one per layer."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...policy.files.policy_files import PolicyFiles
from ...policy.files.problems import PolicyFileError, PolicyProblem
from ...policy.files.source import read_policy_file
from ..options import argument
from .project_trust import PROJECT_FOLDER, TrustedProject
from .settings import Settings
from .user_paths import MANAGED_POLICY, UserPaths

POLICY_EXIT_CODES = (
    "Exit codes: 0 done; 1 denied, invalid, or a flip with --fail-on-flip; 2 bad usage or unreadable file."
)

PolicyFileArgument: TypeAlias = Annotated[Path, argument("FILE", "Policy file, YAML or TOML.")]
ManagedOption: TypeAlias = Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file of the organisation.")]
UserOption: TypeAlias = Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file of the user.")]
ProjectOption: TypeAlias = Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file of the project.")]
SessionOption: TypeAlias = Annotated[Path | None, typer.Option(metavar="FILE", help="Policy file of the session.")]
LayerOption: TypeAlias = Annotated[
    Literal["managed", "user", "project", "session"], typer.Option(help="Layer that the file belongs to.")
]


def require_valid(files: PolicyFiles) -> PolicyFiles:
    """Return the policy. Raise `PolicyFileError` when one of its files is invalid."""
    if files.problems:
        raise PolicyFileError(files.problems)
    return files


def load_named_policy(
    managed: Path | None, user: Path | None, project: Path | None, session: Path | None, workspace: str = ""
) -> PolicyFiles:
    """Return the policy of files that were named, one per layer. Raise `PolicyFileError` for an invalid one."""
    return require_valid(PolicyFiles(managed=managed, user=user, project=project, session=session, workspace=workspace))


def choose_user_file(given: Path | None, user: Path | None) -> Path | None:
    """Return the policy file of the user, named as argument or option but not as both."""
    if given is not None and user is not None:
        raise typer.BadParameter("the user's policy file is given twice")
    return given or user


_EMPTY_POLICY = b"version: 1\n"
PROJECT_POLICY = f"{PROJECT_FOLDER}/policy.yaml"


def load_policy(settings: Settings, user_paths: UserPaths, project: TrustedProject, workspace: str) -> PolicyFiles:
    """Load the policy. Invalid files deny everything; see `PolicyFiles.problems`."""
    user = _find_user_policy(settings, user_paths)
    return PolicyFiles(
        managed=MANAGED_POLICY if os.path.lexists(MANAGED_POLICY) else None,
        user=user,
        project=project.path(PROJECT_POLICY) or None,
        workspace=workspace,
        read=partial(_read_policy_file, project, str(user) if user and not os.path.lexists(user) else ""),
    )


def _read_policy_file(project: TrustedProject, missing: str, path: str) -> bytes:
    """Read a policy file; that of the project as it was when it was trusted.

    Args:
        missing: The default file that there was none of at the start. It is made with the first rule that is saved.
    """
    if path != project.path(PROJECT_POLICY):
        return _EMPTY_POLICY if path == missing and not os.path.lexists(path) else read_policy_file(path)
    try:
        return project.content(PROJECT_POLICY) or b""
    except PolicyFileError:
        raise
    except ConfigurationError:
        reason = "it changed since it was trusted; `interlock trust` shows it and trusts it again"
        raise PolicyFileError([PolicyProblem(path, 0, reason)]) from None


def _find_user_policy(settings: Settings, user_paths: UserPaths) -> Path | None:
    """Return the policy file of the user. A configured file must exist; the default one may be missing."""
    if settings.policy:
        chosen = Path(os.path.expanduser(settings.policy))
        if not chosen.exists():
            raise ConfigurationError(
                f"The policy file {chosen} does not exist. Choose another with `interlock config set policy FILE`."
            )
        return chosen
    return user_paths.policy_file if user_paths.config is not None else None
