"""Refused paths: a message for the model, and a kind for statistics."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EINVAL, EISDIR, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EPERM, EXDEV
from typing import Literal, TypeAlias

from ...domain.errors import SandboxDeniedError
from ...domain.rendering import truncate

RefusalKind: TypeAlias = Literal[
    "malformed",
    "outside",
    "secret",
    "guarded",
    "hidden",
    "link",
    "moved",
    "not_found",
    "not_a_file",
    "not_a_folder",
    "unreadable",
]
_MAX_SHOWN_CHARS = 200


class PathRefusedError(SandboxDeniedError):
    """A path was refused, and nothing was read or changed."""

    nothing_done = True

    def __init__(self, reason: str, kind: RefusalKind) -> None:
        super().__init__(reason, kind)
        self.reason = reason
        self.kind: RefusalKind = kind

    def __str__(self) -> str:
        return self.reason


#: Of each kind, what is the matter with the path, and what to do now. `hidden` is for the rules of a policy.
_MESSAGES: dict[RefusalKind, tuple[str, str]] = {
    "malformed": ("is not a path that can be used", "Write it differently"),
    "outside": ("leads outside the workspace", "Use a path inside of it, from its root on"),
    "secret": ("is kept for credentials, which tools neither read nor write", "Go on without it"),
    "guarded": ("is settings that other programs obey, which tools do not write", "Ask the user to change it"),
    "hidden": ("is closed to tools by a rule", "Go on without it"),
    "link": ("is a link that is not followed here", "Name the file that is meant"),
    "moved": ("leads elsewhere than when the call was judged", "Call the tool again, so that this is judged"),
    "not_found": ("does not exist", "Look for the right name first"),
    "not_a_file": ("is not a plain file", "Name a file"),
    "not_a_folder": ("is not a folder", "Name a folder"),
    "unreadable": ("cannot be opened", "Go on without it, or ask the user for access"),
}
_KINDS: dict[int, RefusalKind] = {
    EXDEV: "outside",
    ENOENT: "not_found",
    ENOTDIR: "not_found",
    ELOOP: "link",
    EMLINK: "link",
    ENAMETOOLONG: "malformed",
    EINVAL: "malformed",
    EISDIR: "not_a_file",
    ENXIO: "not_a_file",
    EACCES: "unreadable",
    EPERM: "unreadable",
}
_DETAILS: dict[int, str] = {
    EXDEV: "",
    ENOENT: "",
    ENOTDIR: "a part of it is a file and not a folder",
    ELOOP: "there are too many links, or one into the kernel's own files",
    EMLINK: "",
    ENAMETOOLONG: "it is too long",
    EISDIR: "it is a folder",
    ENXIO: "it is a socket or a device",
}


def make_refusal(path: str, kind: RefusalKind, detail: str = "", *, message: str = "") -> PathRefusedError:
    """Return the refusal of a path. `message` replaces the usual text of its kind."""
    parenthesis = f" ({detail})" if detail else ""
    matter, advice = _MESSAGES[kind]
    return PathRefusedError(f"{quote_path(path)} {message or matter}{parenthesis}. {advice}.", kind)


def quote_path(path: str) -> str:
    """Quote a path on one line, with nothing invisible in it, and not too long."""
    return repr(truncate(path, _MAX_SHOWN_CHARS))


@contextmanager
def translate_os_errors(path: str) -> Generator[None]:
    """Turn errors of the system about a path into a refusal."""
    try:
        yield
    except OSError as error:
        number = error.errno or EINVAL
        detail = _DETAILS.get(number, os.strerror(number))
        raise make_refusal(path, _KINDS.get(number, "unreadable"), detail) from error
