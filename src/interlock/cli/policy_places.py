"""Which policy files hold for a run here: one per layer, where there is one."""

import os
from pathlib import Path

from ..domain.errors import ConfigurationError
from ..policy.files.policy_files import PolicyFiles
from .places import MANAGED_POLICY, Places
from .project import FOLDER
from .settings import Settings
from .trust import Trusted

PROJECT_POLICY = f"{FOLDER}/policy.yaml"


def policy_here(settings: Settings, places: Places, project: Trusted, workspace: str) -> PolicyFiles:
    """What is not in order denies everything; see `PolicyFiles.problems`."""
    return PolicyFiles(
        managed=MANAGED_POLICY if os.path.lexists(MANAGED_POLICY) else None,
        user=_user_policy(settings, places),
        project=project.path(PROJECT_POLICY) or None,
        workspace=workspace,
    )


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
