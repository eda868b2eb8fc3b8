"""Signs in the output of a failed command that the sandbox refused something.

The kernel informs only the command, which may report it in any form, or not at all. So these are likely causes, for a
reader that would else look for the fault in the code, and no proof. A command that succeeded is not looked at: its
output may well be about such words.
"""

from typing import Literal, NamedTuple, TypeAlias

ViolationCause: TypeAlias = Literal[
    "read_only", "network", "temporary_space", "processes", "memory", "file_size", "permission"
]

MAX_LINE_CHARS = 200
_MAX_SCANNED_CHARS = 256 * 1024

#: The sure ones first; `permission` counts only where nothing else was found.
SIGNS: dict[ViolationCause, tuple[str, ...]] = {
    "read_only": ("Read-only file system", "EROFS"),
    "network": (
        *("Network is unreachable", "ENETUNREACH", "Temporary failure in name resolution", "EAI_AGAIN"),
        *("Could not resolve host", "Name or service not known", "getaddrinfo ENOTFOUND", "Failed to resolve"),
        *("No address associated with hostname", "dial tcp: lookup", "failed to lookup address"),
    ),
    "temporary_space": ("No space left on device", "ENOSPC", "Disk quota exceeded"),
    "processes": ("fork: retry: Resource temporarily unavailable", "Resource temporarily unavailable", "EAGAIN"),
    "memory": ("Cannot allocate memory", "MemoryError", "ENOMEM", "ut of memory", "memory exhausted"),
    "file_size": ("File size limit exceeded", "File too large", "EFBIG"),
    "permission": ("Operation not permitted", "Permission denied", "EPERM", "EACCES"),
}
#: What it means, and what to do now.
ADVICE: dict[ViolationCause, str] = {
    "read_only": "Only the workspace and temporary folders can be written, and settings in it that other programs obey "
    "cannot. A command in a read-only run writes nothing.",
    "network": "Commands have no network: nothing can be downloaded or sent. Work with what is installed, or call bash "
    "with hosts=[...] to ask for the hosts that it needs.",
    "temporary_space": "Temporary folders are small here. Write large files into the workspace, or less.",
    "processes": "A command may start only so many processes. Use fewer workers.",
    "memory": "A command may use only so much memory. Use less at once.",
    "file_size": "A file may only be so large here.",
    "permission": "The sandbox may have refused it: it keeps commands from the rest of the system.",
}


class SandboxViolation(NamedTuple):
    """A likely refusal by the sandbox, and the line that shows it."""

    cause: ViolationCause
    #: The line that shows it.
    line: str


def find_violations(text: str, exit_code: int | None, *, has_network: bool) -> tuple[SandboxViolation, ...]:
    """Return at most one violation of each cause, from the end of an output. Not for `unconfined` profiles."""
    if exit_code == 0:
        return ()
    text = text[-_MAX_SCANNED_CHARS:]
    found = tuple(
        SandboxViolation(cause, line)
        for cause, signs in SIGNS.items()
        if not (cause == "network" and has_network) and (line := _find_line(text, signs))
    )
    sure = tuple(violation for violation in found if violation.cause != "permission")
    return sure or found


def _find_line(text: str, signs: tuple[str, ...]) -> str:
    at = max(text.rfind(sign) for sign in signs)
    if at < 0:
        return ""
    start = max(text.rfind("\n", 0, at) + 1, at - MAX_LINE_CHARS // 2)
    end = text.find("\n", at)
    line = text[start : min(len(text) if end < 0 else end, start + MAX_LINE_CHARS)]
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()
