"""Whether a sandbox under construction covers what it should.

Bubblewrap mounts by path. Another command that may write the workspace can move a folder, or put a link in its place,
between our look at a path and the mount: then something else is covered, or something of the host is shown. So the look
notes which file it saw in which folder, bubblewrap is made to wait when all is mounted and before anything is executed,
and then each path is walked in the sandbox's own view, without following links: the folder must be the one that was
seen, and in it must be what was planned. Once mounted, a folder can be moved, but what was mounted moves along.

Where there is a shell inside, that waits for leave. Where there is none, bubblewrap itself waits: its last option
is to copy a file from a pipe that we have filled: when there is room in the pipe, it reads, so all before is done; when
we close the pipe, it goes on.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

#: The file that is copied; nobody needs it.
GATE = "/.sandbox"
#: An empty file that this package has anyway, shown for one that is hidden. `/dev/null` would not do: no device can be
#: opened on such a mount.
NOTHING = str(Path(__file__).resolve().parent.parent / "py.typed")
#: Where bubblewrap builds the root of the sandbox, until it is done.
UNDER_CONSTRUCTION = "/newroot"


class Cover(NamedTuple):
    """A path below the workspace that something is mounted on."""

    path: str
    #: What is there when nothing is mounted, as device and number, and the folder that it is in.
    file: tuple[int, int]
    folder: tuple[int, int]
    #: Shown empty; else shown as it is, but read-only.
    hidden: bool


def look(path: str, hidden: bool) -> Cover:
    """OSError when it is gone."""
    return Cover(path, _identity(os.lstat(path)), _identity(os.stat(os.path.dirname(path))), hidden)


def what_is_wrong(pid: int, root: str, workspace: str, covers: Iterable[Cover]) -> str:
    """Words for people; empty when everything is as planned."""
    for cover in covers:
        try:
            is_there = _identity(os.lstat(cover.path)) == cover.file
            is_right = is_there and _is_covered(f"/proc/{pid}/root{root}{workspace}", workspace, cover)
        except OSError:
            is_right = False
        if not is_right:
            return f"{cover.path} was moved while it was being protected"
    return ""


def _is_covered(workspace_inside: str, workspace: str, cover: Cover) -> bool:
    *folders, name = os.path.relpath(cover.path, workspace).split("/")
    with ExitStack() as opened:

        def enter(place: str, flags: int, folder: int | None) -> int:
            fd = os.open(place, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
            opened.callback(os.close, fd)
            return fd

        folder = enter(workspace_inside, os.O_DIRECTORY, None)
        for step in folders:
            folder = enter(step, os.O_DIRECTORY | os.O_NOFOLLOW, folder)
        shown = enter(name, os.O_NOFOLLOW, folder)
        in_its_folder = _identity(os.fstat(folder)) == cover.folder
        is_read_only = bool(os.fstatvfs(shown).f_flag & os.ST_RDONLY)
        return in_its_folder and is_read_only and _is_as_planned(cover, os.fstat(shown))


def _is_as_planned(cover: Cover, shown: os.stat_result) -> bool:
    if not cover.hidden:
        return _identity(shown) == cover.file
    # An empty folder in memory is on a device of its own.
    return _identity(shown) == _identity(os.stat(NOTHING)) or shown.st_dev not in (cover.file[0], cover.folder[0])


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
