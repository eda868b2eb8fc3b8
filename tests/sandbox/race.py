"""Somebody who moves folders and links all the time while tools work, and the tools at work.

In the workspace, `a` is by turns a folder and a link to a folder outside that holds files of the same names; `f` is by
turns a file and a link to a file outside; `made` and `made/in` become links as soon as somebody makes them as folders.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from time import monotonic

from interlock.sandbox.host.beneath import PathOpener
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from tests.patience import HANG_SECONDS

CANARY = "outside, and not to be read"
WRITTEN = b"written"

#: It says when it has begun, goes on until it is told to end, and then says how often it did each.
_FLIPPER = """
import ctypes, os, select, sys

outside = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
HERE, EXCHANGE = -100, 2

def flip(name, target):
    libc.renameat2(HERE, name.encode(), HERE, (name + ".link").encode(), EXCHANGE)
    # A write took the place of the link.
    if not (os.path.islink(name) or os.path.islink(name + ".link")):
        os.unlink(name + ".link")
        os.symlink(target, name + ".link")

def take(name, count):
    try:
        os.rename(name, f"trash/{count}")
        os.symlink(outside, name)
    except OSError:
        return 0
    for _ in range(20):
        os.stat(".")
    os.unlink(name)
    return 1

flips = takes = 0
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    flip("a", outside)
    flip("f", outside + "/f")
    flips += 1
    takes += take(("made", "made/in")[flips % 2], flips)
print(flips, takes, flush=True)
"""


class Race:
    """What the tools met, by act and outcome, and how often things moved under them."""

    def __init__(self) -> None:
        self.met: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.flips = 0
        self.takes = 0


def race(folder: Path, reach: PathOpener, seconds: float, enough: Callable[[Race], bool] = lambda found: True) -> Race:
    """Read, list, locate and write in turn, until the time is over and enough was met."""
    outside = _scene(folder)
    before = _content(outside)
    found = Race()
    with moving(folder / "ws", outside, found), Workspace(folder / "ws", opener=reach) as workspace:
        start = monotonic()
        for name, act in cycle(_acts(workspace).items()):
            used = monotonic() - start
            if used > seconds and (enough(found) or used > seconds + HANG_SECONDS):
                break
            _try(found, name, act)
    if _content(outside) != before:
        found.wrong.append("something outside was changed")
    if left := [str(path) for path in (folder / "ws").rglob(".interlock-*")]:
        found.wrong.append(f"left behind: {left}")
    return found


def _acts(workspace: Workspace) -> dict[str, Callable[[], str]]:
    return {
        "read a file": lambda: _read(workspace, "f"),
        "read in a folder": lambda: _read(workspace, "a/f"),
        "read deep": lambda: _read(workspace, "a/../a/./f"),
        "list": lambda: " ".join(entry.name for entry in workspace.list_entries("a").entries),
        "locate": lambda: workspace.locate("a/new/file").relative,
        "write a file": lambda: workspace.replace_file("f", WRITTEN, None).relative,
        "write in a folder": lambda: workspace.replace_file("a/f", WRITTEN, None).relative,
        "make folders": lambda: workspace.replace_file("made/in/here", WRITTEN, None).relative,
    }


def _read(workspace: Workspace, path: str) -> str:
    with workspace.open_file(path, None) as file:
        return os.read(file.fd, 1_000).decode()


def _try(found: Race, name: str, act: Callable[[], str]) -> None:
    try:
        told = act()
    except PathRefusedError as refused:
        found.met[name, "refused"] += 1
        told = str(refused)
    except OSError:
        # A folder that is gone between two steps of a write: nothing was written.
        found.met[name, "failed"] += 1
        return
    else:
        found.met[name, "done"] += 1
    if CANARY in told or "only outside" in told:
        found.wrong.append(f"{name}: {told}")


def _scene(folder: Path) -> Path:
    outside = folder / "out"
    for place, content in ((folder / "ws/a", "inside"), (outside, CANARY)):
        place.mkdir(parents=True)
        (place / "f").write_text(content)
    (outside / "only outside").write_text(CANARY)
    (folder / "ws/trash").mkdir()
    (folder / "ws/f").write_text("inside")
    (folder / "ws/a.link").symlink_to("../out")
    (folder / "ws/f.link").symlink_to("../out/f")
    return outside


def _content(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() if path.is_file() else "folder" for path in folder.rglob("*")}


@contextmanager
def moving(workspace: Path, outside: Path, found: Race) -> Generator[None]:
    """Swap names in the workspace while the block runs, and count how often."""
    words = [sys.executable, "-c", _FLIPPER, str(outside)]
    with subprocess.Popen(words, cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flipper:
        assert flipper.stdout is not None
        assert flipper.stdout.readline() == "begun\n"
        try:
            yield
            told, _ = flipper.communicate("end\n", timeout=HANG_SECONDS)
            found.flips, found.takes = map(int, told.split())
        finally:
            flipper.kill()
