"""Commit in a child that is killed with SIGKILL before its nth system call, for many n: run as a program.

An audit hook of Python is called before every operation on files. Prints the number of calls; the parent process does
nothing but recover and compare.
"""

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import Committed
from interlock.sandbox.workspace.workspace import Workspace

from .scenes import Scene, fill, fill_at_random
from .trees import copy, snapshot

_EVENTS = ("os.", "open", "shutil.", "fcntl.", "tempfile.")


def main(folder: Path, seed: int, undo: bool, stride: int) -> int:
    """Return the number of system calls. A negative seed: a little of everything."""
    scene = Scene(folder / "scene")
    if seed < 0:
        fill(scene)
    else:
        fill_at_random(scene, Random(seed), 12)
    change_set = scene.plan()
    sources = [scene.folder, scene.changed]
    if undo:
        change_set = change_set.invert()
        sources.reverse()
    before, after = (snapshot(source) for source in sources)
    touched = {path for path in before if path in after and before[path][:4] == after[path][:4]}
    expected = [_forget(before, touched), _forget(after, touched)]
    kills = 0
    while True:
        place = folder / "round"
        copy(sources[0], place)
        child = os.fork()
        if child == 0:
            os._exit(_commit(scene, change_set, place, kills))
        status = os.waitpid(child, 0)[1]
        recovered = scene.store.recover()
        found = _forget(snapshot(place), touched)
        assert found in expected, (kills, recovered, found)
        assert all(one.outcome != "blocked" and not one.conflicts for one in recovered), (kills, recovered)
        assert not os.listdir(Path(scene.store.folder, "journals")), kills
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert found == expected[1]
            return kills
        kills += stride
        _remove(place)


def _commit(scene: Scene, change_set: ChangeSet, place: Path, count: int) -> int:
    workspace = Workspace(place)
    left = count

    def kill(event: str, _: object) -> None:
        nonlocal left
        if event.startswith(_EVENTS):
            left -= 1
            if left == -1:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    return 0 if isinstance(scene.store.commit(change_set, workspace), Committed) else 1


def _forget(found: Mapping[str, tuple[object, ...]], touched: set[str]) -> dict[str, tuple[object, ...]]:
    return {path: entry[:4] if path in touched else entry for path, entry in found.items()}


def _remove(place: Path) -> None:
    for folder, _, _ in os.walk(place):
        os.chmod(folder, 0o700)
    for folder, names, _ in os.walk(place):
        for name in names:
            if not os.path.islink(f"{folder}/{name}"):
                os.chmod(f"{folder}/{name}", 0o700)
    shutil.rmtree(place)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "undo", int(sys.argv[4])))
