"""The file system view of a command: options of bubblewrap, in mount order.

The options name only whole folders that no command can write, and the workspace. What is hidden or read-only inside of
them are covers: see `covers`.
"""

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from glob import glob
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...domain.errors import SandboxSetupError
from ..host.descriptors import FileIdentity, get_identity
from ..host.programs import is_inside, runtime_folders
from ..interface import OverlayPaths, SandboxProfile
from . import bash_prelude, covers
from .covers import Cover, CoverKind

_PROGRAM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: What programs of the system are configured by. Not their certificates' keys, not their passwords.
_SETTINGS_FOLDERS = ("/etc/alternatives", "/etc/java-*-openjdk")
#: Small files, of which the sandbox gets a copy, or a link to where they are in `/usr`: that is faster than a mount.
_SETTINGS_FILES = (
    *("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/os-release", "/etc/services"),
)
_NETWORK_FOLDERS = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
_NETWORK_FILES = ("/etc/resolv.conf", "/etc/gai.conf")
_MAX_SETTINGS_FILE_BYTES = 4 << 20
#: Of `/proc`, what root could write though it has no capabilities. Bubblewrap covers others of them, but not these.
_PROC_OF_ROOT = ("/proc/acpi", "/proc/asound", "/proc/driver", "/proc/fs", "/proc/scsi")
_FORBIDDEN_WORKSPACES = frozenset(
    f"/{name}"
    for name in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt"),
        *("proc", "run", "sbin", "srv", "sys", "tmp", "usr", "var"),
    )
)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 inside of a sandbox, where it is empty and private
_FORBIDDEN_PARENTS = ("/dev", "/proc", "/sys")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: Each mount takes longer than the one before.
_MAX_MOUNTS = 1000


class SandboxView(NamedTuple):
    """The mounts, copies and covers of one sandbox."""

    options: tuple[str, ...]
    #: Paths to copy into the sandbox.
    copies: tuple[str, ...]
    #: Shown empty, and made read-only.
    hidden: tuple[str, ...]
    read_only: tuple[str, ...]
    #: What is mounted for them at the gate.
    covers: tuple[Cover, ...]
    #: Which file or folder must be at a path of the sandbox before anything is covered.
    identities: Mapping[str, FileIdentity]
    #: Folders that an overlay shows under another identity: they are compared outside of it.
    below_overlay: Mapping[str, FileIdentity] = MappingProxyType({})


def build_view(profile: SandboxProfile, overlay: OverlayPaths | None = None) -> SandboxView:
    """Build the view of a profile. Raise `SandboxSetupError` for a profile that cannot be shown, or shows too much."""
    _check_profile(profile)
    if overlay is not None:
        _check_overlay(profile, overlay)
    hidden = _drop_nested(_find_existing(profile.hidden, _visible_folders(profile)))
    hidden_set = frozenset(hidden)
    read_only = _drop_nested(_find_read_only(profile)) if profile.writable else ()
    read_only = tuple(path for path in read_only if not is_below(path, hidden_set))
    covered = (*hidden, *read_only)
    pinned = _parent_folders(covered, profile.workspace) if profile.writable else ()
    if len(covered) + len(pinned) + len(profile.readable) > _MAX_MOUNTS:
        raise SandboxSetupError(_too_many_message(covered, profile.workspace))
    options = [
        *(_system_options(profile) if profile.system else ()),
        *(word for path in profile.readable for word in _bind_readable(path, profile)),
        *_bind_workspace(profile, overlay),
    ]
    return SandboxView(
        options=tuple(options),
        copies=tuple(path for path in _list_copies(profile.has_hosts) if path not in profile.hidden)
        if profile.system
        else (),
        hidden=hidden,
        read_only=read_only,
        covers=tuple(_plan_covers({"pinned": pinned, "read_only": read_only, "hidden": hidden})),
        identities=_read_identities(profile),
    )


def _plan_covers(planned: Mapping[CoverKind, tuple[str, ...]]) -> Iterator[Cover]:
    for kind, paths in planned.items():
        for path in paths:
            try:
                yield covers.make_cover(path, kind)
            except OSError as error:
                raise SandboxSetupError(f"{path} cannot be protected: {error}.") from error


def _read_identities(profile: SandboxProfile) -> dict[str, FileIdentity]:
    """Return what was looked at and is mounted by its path: it must be the same when everything is mounted."""
    try:
        workspace = get_identity(os.lstat(profile.workspace))
        shown = {path: get_identity(os.stat(path)) for path in profile.readable if os.path.realpath(path) == path}
    except OSError as error:
        raise SandboxSetupError(f"The sandbox cannot be planned: {error}.") from error
    if profile.identity and workspace != profile.identity:
        raise SandboxSetupError(f"The workspace {profile.workspace} was replaced by another folder.")
    return {**shown, profile.workspace: workspace}


def _parent_folders(paths: Iterable[str], workspace: str) -> tuple[str, ...]:
    """Return the folders of the workspace that contain the paths, outer ones first.

    A folder that could be moved would take a path to where no rule knows it. A mount cannot be moved.
    """
    found: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        while is_inside(folder, workspace) and folder != workspace and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return tuple(sorted(found))


def _too_many_message(paths: tuple[str, ...], workspace: str) -> str:
    [(folder, count)] = Counter(map(os.path.dirname, paths)).most_common(1)
    place = os.path.relpath(folder, workspace) if is_inside(folder, workspace) else folder
    where = "the workspace itself" if place == "." else place[:500]
    return (
        f"{len(paths):,} files and folders would have to be hidden from commands or held read-only, more than a "
        f"sandbox takes ({_MAX_MOUNTS:,} with the folders they are in). The most of them, {count:,}, are in {where}. "
        "No command can fix this: a person has to remove them or move them elsewhere."
    )


def _drop_nested(paths: Iterable[str]) -> tuple[str, ...]:
    """Drop paths inside of others, which cover them."""
    found: dict[str, None] = {}
    for path in sorted(set(paths)):
        if not is_below(path, found):
            found[path] = None
    return tuple(found)


def is_below(path: str, others: Container[str]) -> bool:
    """Return True if the path is one of the others, or inside of one."""
    while path not in others and path != "/":
        path = os.path.dirname(path)
    return path in others


def _check_profile(profile: SandboxProfile) -> None:
    workspace = profile.workspace
    if workspace in _FORBIDDEN_WORKSPACES or any(is_inside(workspace, top) for top in _FORBIDDEN_PARENTS):
        raise SandboxSetupError(f"{workspace} is the system's and cannot be a workspace.")
    if not os.path.isabs(workspace) or os.path.realpath(workspace) != workspace:
        raise SandboxSetupError(f"The workspace {workspace} is not an absolute, real path.")
    if not os.path.isdir(workspace) or not os.access(workspace, os.R_OK | os.X_OK):
        raise SandboxSetupError(f"The workspace {workspace} is gone or cannot be read.")
    for path in profile.readable:
        _refuse_homes(path)
    for path in profile.hidden:
        if is_inside(workspace, path):
            raise SandboxSetupError(f"{path} cannot be hidden: the workspace is in it.")


def _refuse_homes(path: str) -> None:
    """Refuse folders that contain a home folder or system state: they contain keys."""
    if not os.path.isabs(path):
        raise SandboxSetupError(f"{path} is not an absolute path.")
    homes = {os.path.expanduser("~"), "/root", "/home/x", "/etc/x", "/run/x", "/var/x", "/proc/x", "/sys/x", "/dev/x"}
    if any(is_inside(home, os.path.realpath(path)) for home in homes):
        raise SandboxSetupError(f"{path} holds more than a command may read.")


def _bind_readable(path: str, profile: SandboxProfile) -> tuple[str, ...]:
    if is_inside(path, profile.workspace):
        return ()
    if not os.access(path, os.R_OK):
        raise SandboxSetupError(f"{path} is gone or cannot be read.")
    return ("--ro-bind", path, path)


def _bind_workspace(profile: SandboxProfile, overlay: OverlayPaths | None) -> tuple[str, ...]:
    workspace = profile.workspace
    if overlay is not None:
        return ("--overlay-src", workspace, "--overlay", overlay.upper, overlay.work, workspace)
    return ("--bind" if profile.writable else "--ro-bind", workspace, workspace)


def _check_overlay(profile: SandboxProfile, overlay: OverlayPaths) -> None:
    """Raise `SandboxSetupError` where an overlay would show itself, or not all of the workspace."""
    if not (profile.writable and profile.system):
        raise SandboxSetupError("An overlay is for a command that can write its workspace. Nothing was executed.")
    for folder in (overlay.upper, overlay.work):
        for shown in (profile.workspace, *profile.readable):
            if is_inside(folder, shown) or is_inside(shown, folder):
                raise SandboxSetupError(f"The folder {folder} of an overlay would be visible in the sandbox.")
    if mounted := find_mount_below(profile.workspace):
        raise SandboxSetupError(f"An overlay of the workspace would not show {mounted}: it is mounted there.")


def find_mount_below(folder: str) -> str:
    """Return a mount point inside of a folder; empty when there is none."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        # A blank, a tab, a newline and a backslash are written as octal numbers.
        points = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in mounts)
        return next((point for point in points if point != folder and is_inside(point, folder)), "")


def _find_read_only(profile: SandboxProfile) -> Iterator[str]:
    """Yield what the caller names, and the code of this process: write access to it would escape the sandbox."""
    if any(is_inside(profile.workspace, folder) for folder in runtime_folders()):
        raise SandboxSetupError(
            f"The workspace {profile.workspace} is where the runtime itself is installed: a command could change it."
        )
    inside = (folder for folder in runtime_folders() if is_inside(folder, profile.workspace))
    yield from _find_existing((*profile.read_only, *inside), (profile.workspace,))


def _find_existing(paths: Iterable[str], shown: tuple[str, ...]) -> Iterator[str]:
    """Yield the real paths of those that exist and are visible: a mount on another would create it on the host."""
    for path in paths:
        try:
            real = os.path.realpath(path)
        except OSError as error:  # a link was replaced while it was followed
            raise SandboxSetupError(f"{path} changes while the sandbox is set up: {error.strerror}.") from error
        if any(is_inside(real, place) for place in shown) and os.path.lexists(real):
            yield real


def _visible_folders(profile: SandboxProfile) -> tuple[str, ...]:
    system = (*_PROGRAM_FOLDERS, *_settings_folders(profile.has_hosts)) if profile.system else ()
    return (profile.workspace, *profile.readable, *system)


def _system_options(profile: SandboxProfile) -> tuple[str, ...]:
    """Return what every program may expect of a system."""
    size = str(profile.limits.temporary_bytes)
    return (
        *("--perms", "0755", "--dir", "/etc"),
        *_program_options(profile.has_hosts),
        # `/dev` itself is as large as half of the memory.
        *("--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", _SHARED_MEMORY, "--remount-ro", "/dev"),
        *("--proc", "/proc", *_proc_options()),
        *("--size", size, "--perms", "1777", "--tmpfs", bash_prelude.TEMPORARY),
        *("--size", size, "--tmpfs", bash_prelude.HOME),
    )


@cache
def _program_options(network: bool) -> tuple[str, ...]:
    options: list[str] = []
    for path in (*_PROGRAM_FOLDERS, *_settings_folders(network)):
        if os.path.islink(path) and path.count("/") == 1:
            options += ("--symlink", os.readlink(path), path)
        elif os.access(path, os.R_OK | os.X_OK):
            options += ("--ro-bind", path, path)
    for path in filter(_is_link_to_usr, _SETTINGS_FILES):
        options += ("--symlink", os.path.realpath(path), path)
    return tuple(options)


@cache
def _settings_folders(network: bool) -> tuple[str, ...]:
    found = (path for name in _SETTINGS_FOLDERS for path in sorted(glob(name)))
    return (*found, *(_NETWORK_FOLDERS if network else ()))


def _is_link_to_usr(path: str) -> bool:
    return os.path.islink(path) and is_inside(os.path.realpath(path), "/usr")


@cache
def _proc_options() -> tuple[str, ...]:
    # Bubblewrap leaves it open to root: it asks whether the folder can be written, not the files in it.
    options = ["--ro-bind", "/proc/sys", "/proc/sys"]
    if os.geteuid() == 0:
        options += [word for path in _PROC_OF_ROOT if _has_writable_file(path) for word in ("--ro-bind", path, path)]
    return tuple(options)


def _has_writable_file(path: str) -> bool:
    files = [Path(path)] if os.path.isfile(path) else (file for file in Path(path).rglob("*") if file.is_file())
    return any(file.stat().st_mode & 0o222 for file in files)


@cache
def _list_copies(network: bool) -> tuple[str, ...]:
    paths = (*_SETTINGS_FILES, *(_NETWORK_FILES if network else ()))
    return tuple(path for path in paths if not _is_link_to_usr(path) and _is_small_file(path))


def _is_small_file(path: str) -> bool:
    is_readable = os.path.isfile(path) and os.access(path, os.R_OK)
    return is_readable and os.path.getsize(path) <= _MAX_SETTINGS_FILE_BYTES
