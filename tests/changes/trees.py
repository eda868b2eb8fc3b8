"""Trees of files for tests: snapshots, random edits, and the change set between two folders."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeAlias

from interlock.changes.change_set import Change, ChangeSet, FileState
from interlock.changes.store import ChangeStore

#: Kind, mode, content or target, attributes, time (of files and links).
Entry: TypeAlias = tuple[str, int, bytes, dict[str, bytes], int]
NAMES = (
    "a",
    "b",
    "A",
    "e\u0301",
    "\u00e9",
    "x y",
    "-n",
    "new\nline",
    os.fsdecode(b"\xff\xfe"),
    "'q\"",
    "*",
    "a-b",
    "#1",
)
MODES = (0o644, 0o600, 0o755, 0o444, 0o000, 0o1777)
FOLDER_MODES = (0o755, 0o700, 0o555, 0o1777)


def snapshot(folder: Path) -> dict[str, Entry]:
    """Return everything below a folder. What cannot be read is made readable for a moment."""
    return dict(_walk(os.fspath(folder), ""))


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, Entry]]:
    for name in sorted(os.listdir(folder)):
        path, found = f"{folder}/{name}", os.lstat(f"{folder}/{name}")
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            yield prefix + name, ("link", 0, os.fsencode(os.readlink(path)), {}, found.st_mtime_ns)
        elif stat.S_ISDIR(found.st_mode):
            os.chmod(path, mode | 0o700)
            yield prefix + name, ("folder", mode, b"", _xattrs(path), 0)
            yield from _walk(path, f"{prefix}{name}/")
            os.chmod(path, mode)
        elif stat.S_ISREG(found.st_mode):
            os.chmod(path, mode | 0o600)
            content = Path(path).read_bytes()
            yield prefix + name, ("file", mode, content, _xattrs(path), found.st_mtime_ns)
            os.chmod(path, mode)
        else:
            yield prefix + name, ("other", 0, b"", {}, 0)


def _xattrs(path: str) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}


def grow(folder: Path, random: Random, count: int) -> None:
    """Make random files, folders and links."""
    for _ in range(count):
        edit(folder, random, ("write", "write", "folder", "link", "xattr"))


def close_folders(folder: Path, random: Random) -> None:
    """Take rights to some folders away, also from ourselves."""
    for path in reversed([path for path in _below(folder) if path.is_dir() and not path.is_symlink()]):
        if random.random() < 0.3:
            os.chmod(path, random.choice((0o555, 0o500, 0o300, 0o000)))


EDITS = (
    "write",
    "write",
    "append",
    "delete",
    "delete",
    "rename",
    "chmod",
    "folder",
    "link",
    "replace",
    "xattr",
    "empty",
)


def edit(folder: Path, random: Random, kinds: tuple[str, ...] = EDITS) -> None:  # noqa: C901 - one branch for each kind
    """Do one thing that a command could do, somewhere below the folder."""
    folders = [folder, *(path for path in _below(folder) if path.is_dir() and not path.is_symlink())]
    place = random.choice(folders)
    path = place / random.choice(NAMES)
    kind = random.choice(kinds)
    if kind in ("write", "replace") and (kind == "replace" or not path.is_dir() or path.is_symlink()):
        remove(path)
        path.write_bytes(random.choice((b"", b"x", random.randbytes(random.randrange(2_000)))))
        os.chmod(path, random.choice(MODES))
        os.utime(path, ns=(1, random.randrange(1, 2_000_000_000) * 1_000_000_007))
    elif kind == "append" and path.is_file() and not path.is_symlink():
        mode = stat.S_IMODE(path.stat().st_mode)
        os.chmod(path, 0o600)
        with path.open("ab") as file:
            file.write(b"more")
        os.chmod(path, mode)
    elif kind == "delete":
        remove(path)
    elif kind == "rename" and os.path.lexists(path):
        other = random.choice(folders) / random.choice(NAMES)
        if not f"{other}/".startswith(f"{path}/") and not f"{path}/".startswith(f"{other}/"):
            remove(other)
            path.rename(other)
    elif kind == "chmod" and os.path.lexists(path) and not path.is_symlink():
        os.chmod(path, random.choice(FOLDER_MODES if path.is_dir() else MODES))
    elif kind == "folder" and not os.path.lexists(path):
        path.mkdir()
    elif kind == "link":
        remove(path)
        path.symlink_to(random.choice(("a", "../b", "/etc/passwd", ".")))
    elif kind == "xattr" and os.path.lexists(path) and not path.is_symlink():
        with suppress(PermissionError):
            os.setxattr(path, f"user.{random.choice('xyz')}", random.randbytes(3))
    elif kind == "empty" and place != folder:
        for inner in list(place.iterdir()):
            remove(inner)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        for inner in (path, *_below(path)):
            if inner.is_dir() and not inner.is_symlink():
                os.chmod(inner, 0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        found.append(path)
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, stat.S_IMODE(path.stat().st_mode) | 0o700)
            found += _below(path)
    return found


def copy(folder: Path, other: Path) -> None:
    """Copy a tree with modes, times, links and attributes."""
    other.mkdir()
    entries = snapshot(folder)
    for path, (kind, _, content, xattrs, mtime) in entries.items():
        if kind == "link":
            os.symlink(content, os.fsencode(other / path))
            os.utime(other / path, ns=(mtime, mtime), follow_symlinks=False)
        elif kind == "folder":
            (other / path).mkdir()
        else:
            (other / path).write_bytes(content)
            os.utime(other / path, ns=(mtime, mtime))
        for name, value in xattrs.items():
            os.setxattr(other / path, name, value)
    for path, (kind, mode, *_) in reversed(entries.items()):
        if kind != "link":
            os.chmod(other / path, mode)


def compare(store: ChangeStore, before: Path, after: Path) -> ChangeSet:
    """Return what makes one folder of another. Both stay as they are."""
    old, new = (
        {path: _state(store, folder, path, entry) for path, entry in snapshot(folder).items()}
        for folder in (before, after)
    )
    absent = FileState(kind="absent")
    changes = (
        Change(path=path, before=old.get(path, absent), after=new.get(path, absent)) for path in sorted({*old, *new})
    )
    return ChangeSet(changes=tuple(one for one in changes if not one.before.matches(one.after)))


def add_content(store: ChangeStore, content: bytes) -> str:
    """Keep a content as the store does, and return its digest."""
    digest, folder = hashlib.sha256(content).hexdigest(), Path(store.folder, "objects")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / digest).write_bytes(content)
    return digest


def _state(store: ChangeStore, folder: Path, path: str, entry: Entry) -> FileState:
    kind, mode, content, xattrs, mtime = entry
    if kind == "file":
        digest = add_content(store, content)
    else:
        digest = hashlib.sha256(content).hexdigest() if kind == "link" else ""
    return FileState(
        kind=kind,  # pyright: ignore[reportArgumentType]
        mode=mode,
        size=len(content) if kind == "file" else 0,
        digest=digest,
        target=os.fsdecode(content) if kind == "link" else "",
        mtime_ns=mtime,
        xattrs={name: value.hex() for name, value in xattrs.items()},
    )


__all__ = ["close_folders", "compare", "copy", "edit", "grow", "remove", "snapshot"]
