"""What a run in a folder can call: the local tools as settings have them, and the skills of places that are trusted."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...domain.errors import ConfigurationError
from ...domain.tool import ToolDefinition
from ...local import LocalTools
from ...sandbox.host.programs import python_folders
from ...tools.skills.tools import skills
from ..config.places import Places
from ..config.project import FOLDER
from ..config.settings import Settings
from ..config.trusted import Trusted, trusted_files

PROJECT_SKILLS = f"{FOLDER}/skills"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def local_tools(workspace: str, settings: Settings, places: Places) -> LocalTools:
    tools = LocalTools(
        workspace,
        readable=[os.path.expanduser(path) for path in settings.readable],
        environment=_environment(workspace, os.environ),
        network=settings.network,
        outside=settings.outside,
    )
    tools.keep_off(places.own_paths)
    return tools


def skill_tools(places: Places, project: Trusted) -> Iterator[ToolDefinition]:
    """Those of the user, then those of the project. What was loaded is what was trusted, or it is not used."""
    if places.config is not None and places.skills.is_dir():
        yield from skills(places.skills)
    start = f"{PROJECT_SKILLS}/"
    digests = {file.path.removeprefix(start): file.sha256 for file in project.files if file.path.startswith(start)}
    if digests:
        yield from skills(os.path.join(project.root, PROJECT_SKILLS), trusted=digests)
        if trusted_files(Path(project.root), places) != project:
            raise ConfigurationError(f"The skills of {project.root} were changed a moment ago. Nothing was started.")


def _environment(workspace: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Commands inherit nothing. An environment for Python that is active and that they can see is active for them."""
    active = environ.get("VIRTUAL_ENV", "")
    programs = os.path.join(active, "bin")
    is_seen = os.path.realpath(active).startswith(f"{workspace}/") or programs in python_folders()
    return {"PATH": f"{programs}:{_SYSTEM_PATH}"} if active and is_seen else {}
