"""The tools of a run in a folder: local tools as configured, and skills of trusted places."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...domain.errors import ConfigurationError
from ...domain.tool import ToolDefinition
from ...local import LocalTools
from ...sandbox.host.programs import python_folders
from ...tools.skills.skill_tools import skills
from ..config.project_files import PROJECT_FOLDER
from ..config.project_trust import TrustedProject, check_trust
from ..config.settings import Settings
from ..config.user_paths import UserPaths

PROJECT_SKILLS = f"{PROJECT_FOLDER}/skills"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_local_tools(workspace: str, settings: Settings, user_paths: UserPaths) -> LocalTools:
    tools = LocalTools(
        workspace,
        extra_read_paths=[os.path.expanduser(path) for path in settings.readable],
        environment=_build_environment(workspace, os.environ),
        network=settings.network,
        allow_unsandboxed=settings.outside,
    )
    tools.protect_paths(user_paths.own_paths)
    return tools


def load_skill_tools(user_paths: UserPaths, project: TrustedProject) -> Iterator[ToolDefinition]:
    """Yield the skills of the user, then those of the project. Only trusted content is used."""
    if user_paths.config is not None and user_paths.skills_folder.is_dir():
        yield from skills(user_paths.skills_folder)
    start = f"{PROJECT_SKILLS}/"
    digests = {file.path.removeprefix(start): file.sha256 for file in project.files if file.path.startswith(start)}
    if digests:
        yield from skills(os.path.join(project.root, PROJECT_SKILLS), trusted=digests)
        if check_trust(Path(project.root), user_paths) != project:
            raise ConfigurationError(f"The skills of {project.root} were changed a moment ago. Nothing was started.")


def _build_environment(workspace: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Commands inherit nothing. An environment for Python that is active and that they can see is active for them."""
    virtual_env = environ.get("VIRTUAL_ENV", "")
    programs = os.path.join(virtual_env, "bin")
    is_visible = os.path.realpath(virtual_env).startswith(f"{workspace}/") or programs in python_folders()
    return {"PATH": f"{programs}:{_SYSTEM_PATH}"} if virtual_env and is_visible else {}
