"""Files of the user. Folders follow the XDG rules and are private.

| what | where |
|---|---|
| settings, the user's policy, skills | `$XDG_CONFIG_HOME/interlock/`, else `~/.config/interlock/` |
| runs, artifacts, changes of files, background tasks, trusted projects | `$XDG_STATE_HOME/interlock/`, else |
| | `~/.local/state/interlock/` |

Without a home there are no settings of a user, which is fine; what has to be kept says that there is no place for it.
"""

import os
import pwd
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ...domain.errors import ConfigurationError

#: The managed policy of this host.
MANAGED_POLICY = Path("/etc/interlock/policy.yaml")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UserPaths(msgspec.Struct, frozen=True):
    """The folders of a user. None: there is no home. Nothing here needs to exist."""

    config: Path | None
    state: Path | None

    @property
    def settings_file(self) -> Path:
        """Path of the settings file."""
        return self._require(self.config, "settings", "XDG_CONFIG_HOME") / "config.toml"

    @property
    def policy_file(self) -> Path:
        """Path of the user's policy file."""
        return self._require(self.config, "a policy", "XDG_CONFIG_HOME") / "policy.yaml"

    @property
    def skills_folder(self) -> Path:
        """Folder of the user's skills."""
        return self._require(self.config, "skills", "XDG_CONFIG_HOME") / "skills"

    @property
    def log(self) -> Path:
        """Path of the default log."""
        return self._require(self.state, "runs", "XDG_STATE_HOME", ", or name a log with --log") / "runs.db"

    @property
    def artifacts(self) -> Path:
        """Folder of the stored artifacts."""
        return self._require(self.state, "artifacts", "XDG_STATE_HOME") / "artifacts"

    @property
    def changes(self) -> Path | None:
        """Folder of what runs changed, for approvals after a trial and for undo. None: there is no home."""
        return None if self.state is None else self.state / "changes"

    @property
    def trust_file(self) -> Path:
        """Path of the file with the trusted projects."""
        return self._require(self.state, "trusted projects", "XDG_STATE_HOME") / "trust.json"

    @property
    def tasks(self) -> Path | None:
        """Folder of the background tasks; None when there is no place for it."""
        return None if self.state is None else self.state / "tasks"

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Paths that no tool may access."""
        return tuple(str(folder) for folder in (self.config, self.state) if folder is not None)

    def make_state_folder(self) -> Path:
        """Return the state folder, created when missing."""
        return make_private_folder(self._require(self.state, "runs", "XDG_STATE_HOME"))

    def _require(self, folder: Path | None, what: str, variable: str, hint: str = "") -> Path:
        if folder is None:
            raise ConfigurationError(
                f"There is no place for {what}: this user has no home folder. Set HOME or {variable}{hint}."
            )
        return folder


def login_name() -> str:
    """Return the login name of the user of this process: recorded, but not authenticated."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def find_user_paths(environ: Mapping[str, str] = os.environ) -> UserPaths:
    """Find the folders for configuration and state according to the XDG specification."""
    home = _find_home(environ)
    return UserPaths(
        _find_folder(environ, "XDG_CONFIG_HOME", home and home / ".config"),
        _find_folder(environ, "XDG_STATE_HOME", home and home / ".local" / "state"),
    )


def make_private_folder(folder: Path) -> Path:
    """Return the folder, private to its owner. Raise `ConfigurationError` when others could write into it."""
    try:
        for path in reversed((folder, *folder.parents)):
            if not os.path.isdir(path):
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be used: {error.strerror or error}. Set XDG_STATE_HOME and XDG_CONFIG_HOME to folders "
            "that can be written."
        ) from None
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"{folder} belongs to user {found.st_uid}. What is kept there must be yours.")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise ConfigurationError(f"Others may write into {folder}. Do `chmod go-w {folder}` first.")
    return folder


def _find_home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "")
    if not home:
        with suppress(KeyError):
            home = pwd.getpwuid(os.geteuid()).pw_dir
    return Path(home) if os.path.isabs(home) and os.path.isdir(home) else None


def _find_folder(environ: Mapping[str, str], variable: str, default: Path | None) -> Path | None:
    """Return the folder of Interlock. Ignore a relative path: it would differ in every working directory."""
    folder = environ.get(variable, "")
    base = Path(folder) if os.path.isabs(folder) else default
    return None if base is None else base / "interlock"


def write_new_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write a private file that must not exist yet. Remove it if writing fails."""
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            try:
                file.writelines(parts)
            except BaseException:
                with suppress(OSError):
                    os.unlink(path)
                raise
    except FileExistsError:
        raise ConfigurationError(f"{path} is there already; name a new file.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from None
