"""Whether a sandbox under construction covers what it should.

Bubblewrap mounts by path. Another command that may write the workspace can move a folder, or put a link in its place,
between our look at a path and the mount: then something else is covered, or something of the host is shown. So the look
notes which file it saw in which folder, bubblewrap is made to wait when all is mounted and before anything is executed,
and then each path is walked in the sandbox's own view, without following links: the folder must be the one that was
seen, and in it must be what was planned. Once mounted, others can move a folder, but what was mounted moves along. The
command itself cannot move a folder above a cover: each is mounted on itself, and a place with a mount is busy.

Where there is a shell inside, that waits for leave. Where there is none, bubblewrap itself waits: its last option
is to copy a file from a pipe that we have filled: when there is room in the pipe, it reads, so all before is done; when
we close the pipe, it goes on.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

#: The file that is copied; nobody needs it.
GATE = "/.sandbox"
#: An empty file that this package has anyway, shown for one that is hidden. `/dev/null` would not do: no device can be
#: opened on such a mount.
NOTHING = str(Path(__file__).resolve().parent.parent / "py.typed")
#: Where bubblewrap builds the root of the sandbox, until it is done.
UNDER_CONSTRUCTION = "/newroot"


#: Shown empty; shown as it is, but read-only; shown as it is, but never moved.
Kind: TypeAlias = Literal["hidden", "read_only", "pinned"]


class Cover(NamedTuple):
    """A path below the workspace that something is mounted on."""

    path: str
    #: What is there when nothing is mounted, as device and number, and the folder that it is in.
    file: tuple[int, int]
    folder: tuple[int, int]
    kind: Kind


def look(path: str, kind: Kind) -> Cover:
    """OSError when it is gone."""
    return Cover(path, _identity(os.lstat(path)), _identity(os.stat(os.path.dirname(path))), kind)


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
        is_mounted = _mount(shown) != _mount(folder) if cover.kind == "pinned" else _is_read_only(shown)
        return in_its_folder and is_mounted and _is_as_planned(cover, os.fstat(shown))


def _is_read_only(opened: int) -> bool:
    return bool(os.fstatvfs(opened).f_flag & os.ST_RDONLY)


def _mount(opened: int) -> str:
    """The number of the mount that it was reached by."""
    lines = Path(f"/proc/self/fdinfo/{opened}").read_text().splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _is_as_planned(cover: Cover, shown: os.stat_result) -> bool:
    if cover.kind != "hidden":
        return _identity(shown) == cover.file
    # An empty folder in memory is on a device of its own.
    return _identity(shown) == _identity(os.stat(NOTHING)) or shown.st_dev not in (cover.file[0], cover.folder[0])


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
