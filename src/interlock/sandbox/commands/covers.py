"""Covers: mounts that hide a path, make it read-only or pin it, made by descriptor before a command begins.

Bubblewrap mounts by path, and makes what is not there: under a folder that another command can write, that is a way to
the files of the host. So bubblewrap mounts only whole folders, and the command waits at a gate. Then it is compared
whether those are the folders that were planned, and `sandbox_helper` puts the covers on what it holds open. Nothing of
a model has run in the sandbox by then, and no path of the host is used to mount anything.

Once mounted, others can move a folder, and what was mounted moves along. The command itself cannot move a folder above
a cover: each is mounted on itself (`pinned`), and a place with a mount is busy.

Where there is a shell inside, that waits for leave. Where there is none, bubblewrap itself waits: its last option is to
copy a file from a pipe that we have filled: when there is room in the pipe, it reads, so all before is done; when we
close the pipe, it continues.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from errno import ESTALE
from typing import Literal, NamedTuple, TypeAlias

from ..host.descriptors import FileIdentity, closing_fd, get_identity
from . import sandbox_helper
from .helper_process import helper_process

#: An empty file of the sandbox, shown for a hidden one; and the file that bubblewrap copies while it waits.
EMPTY_FILE, GATE_FILE = "/.sandbox-empty", "/.sandbox-gate"
#: Where bubblewrap builds the root of the sandbox, until it is done.
BUILD_ROOT = "/newroot"
_REPLY_BYTES = 4096

#: In place of the device: the number after it is the time of the last change of status, in nanoseconds. A file has
#: another device in an overlay than below it, and a folder may have another inode, but this is the same.
_OVERLAY_DEVICE = -1
#: Shown empty; shown as it is, but read-only; shown as it is, but never moved.
CoverKind: TypeAlias = Literal["hidden", "read_only", "pinned"]


class Cover(NamedTuple):
    """A path of the sandbox that something is mounted on, and what it is without that."""

    path: str
    identity: FileIdentity
    kind: CoverKind


def make_cover(path: str, kind: CoverKind) -> Cover:
    """Return the cover of something that exists. Raise `OSError` when it is gone."""
    return Cover(path, get_identity(os.lstat(path)), kind)


def make_overlay_cover(cover: Cover) -> Cover:
    """Return the cover for an overlay of its folder. Raise `OSError` when the path leads to another file by now.

    Nothing else may change the workspace meanwhile: see `CommandSpec.overlay`.
    """
    found = os.lstat(cover.path)
    if get_identity(found) != cover.identity:
        raise OSError(ESTALE, f"{cover.path} was exchanged while the sandbox was made")
    return cover._replace(identity=(_OVERLAY_DEVICE, found.st_ctime_ns))


def find_mismatch(pid: int, root: str, shown: Mapping[str, FileIdentity]) -> str:
    """Return the first path at which a process sees another file than planned; empty when there is none."""
    with ExitStack() as opened:
        top = _open(f"/proc/{pid}/root{root}", os.O_DIRECTORY, None, opened)
        for path, identity in shown.items():
            try:
                here = top
                for name in filter(None, path.split("/")):
                    here = _open(name, os.O_NOFOLLOW, here, opened)
            except OSError:
                return path
            if get_identity(os.fstat(here)) != identity:
                return path
    return ""


def _open(name: str, flags: int, folder: int | None, opened: ExitStack) -> int:
    fd = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
    opened.callback(os.close, fd)
    return fd


def mount_covers(namespace: int, root: str, covers: Iterable[Cover]) -> str:
    """Mount the covers in a mount namespace, and return what went wrong; empty when nothing did. It blocks."""
    words = [root, EMPTY_FILE]
    for cover in covers:
        words += (cover.kind, cover.path, *map(str, cover.identity))
    with closing_fd(os.memfd_create("covers")) as plan:
        os.write(plan, "\0".join((*words, "")).encode("utf-8", "surrogateescape"))
        reply = _request_mount(namespace, plan)
    return "" if reply == sandbox_helper.OK else reply.decode(errors="replace") or "the process that mounts died"


def _request_mount(namespace: int, plan: int) -> bytes:
    """Ask the helper of this process, which is started for the first question and again when it is gone."""
    for is_last in (False, True):
        replies, its_end = os.pipe()
        try:
            helper_process.send((namespace, plan, its_end))
        except OSError:
            os.close(replies)
            if is_last:
                raise
            continue
        finally:
            os.close(its_end)
        with closing_fd(replies):
            return os.read(replies, _REPLY_BYTES)
    raise AssertionError  # the last round has returned or raised
