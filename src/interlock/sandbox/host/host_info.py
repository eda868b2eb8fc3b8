"""Properties of this host that decide how commands can be confined."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from .beneath import has_openat2
from .landlock import get_abi
from .seccomp import MACHINES

_SETTINGS = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)
#: Files that container engines make.
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The host: its system, kernel and confinement features."""

    system: str
    kernel: str
    machine: str
    #: The effective one.
    user_id: int
    container: bool
    #: Of the kernel, by name; those that it has.
    settings: Mapping[str, str]
    #: The kernel can open a path without leaving a folder.
    openat2: bool
    landlock_abi: int
    #: The kernel has filters of system calls, and we have one for this machine.
    seccomp: bool
    #: `v2, writable`, `v2`, `v1`, `none`.
    cgroup: str


def read_host_info() -> HostInfo:
    """Read the properties of this machine that sandboxes depend on."""
    return HostInfo(
        system=platform.system(),
        kernel=platform.release(),
        machine=platform.machine(),
        user_id=os.geteuid(),
        container=any(map(os.path.exists, _CONTAINER_FILES)),
        settings={name: value for name in _SETTINGS if (value := _read_text(f"/proc/sys/{name.replace('.', '/')}"))},
        openat2=has_openat2(),
        landlock_abi=get_abi(),
        seccomp=os.path.exists("/proc/sys/kernel/seccomp") and platform.machine() in MACHINES,
        cgroup=_read_cgroup_state(),
    )


def _read_cgroup_state() -> str:
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "v1" if os.path.isdir("/sys/fs/cgroup") and os.listdir("/sys/fs/cgroup") else "none"
    own = next((line[3:] for line in _read_text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    writable = own != "" and os.access(f"/sys/fs/cgroup{own}/cgroup.procs", os.W_OK)
    return "v2, writable" if writable else "v2"


def _read_text(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="ascii").strip()
    return ""
