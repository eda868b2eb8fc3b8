"""The settings that hold in a project."""

from collections.abc import Mapping
from pathlib import Path

from ...domain.errors import ConfigurationError
from .project_trust import TrustedProject, check_trust
from .settings import LoadedSettings, load_settings
from .user_paths import UserPaths


def load_project(
    workspace: str, user_paths: UserPaths, environ: Mapping[str, str]
) -> tuple[LoadedSettings, TrustedProject]:
    """Return the settings in a workspace. Files of a project that is not trusted do not count; raise
    `ConfigurationError` where they were trusted and changed.
    """
    project = check_trust(Path(workspace), user_paths)
    if not isinstance(project, TrustedProject):
        if project.counted_before:
            raise ConfigurationError(project.refusal)
        project = TrustedProject(project.root)
    return load_settings(user_paths, project, environ), project
