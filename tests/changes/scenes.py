"""Workspaces with the same folder as a command would leave it, and commits that are killed."""

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlock.changes import commit
from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import Committed, Journal
from interlock.changes.store import ChangeStore
from interlock.sandbox.workspace.workspace import Workspace

from .trees import Entry, close_folders, compare, copy, edit, grow, remove, snapshot


class Scene:
    """A workspace, and the same folder as a command would leave it."""

    def __init__(self, folder: Path, journal: type[Journal] = Journal) -> None:
        self.folder = folder / "workspace"
        self.changed = folder / "changed"
        self.folder.mkdir(parents=True)
        self.store = ChangeStore(folder / "store", open_journal=journal)
        self.workspace = Workspace(self.folder)

    def plan(self) -> ChangeSet:
        return compare(self.store, self.folder, self.changed)

    def close(self) -> None:
        self.workspace.close()
        self.store.close()

    def list_left(self) -> list[str]:
        """Return journals and names of ours in the workspace."""
        inside = [name for _, folders, files in os.walk(self.folder) for name in (*folders, *files)]
        return [*os.listdir(Path(self.store.folder, "journals")), *(name for name in inside if "interlock" in name)]


def fill(scene: Scene) -> None:
    """Change a little of everything."""
    files = {"same": "same", "edited": "old", "gone": "gone", "dir/inner": "inner", "turns": "file", "mode/x": ""}
    for name, text in files.items():
        (scene.folder / name).parent.mkdir(exist_ok=True)
        (scene.folder / name).write_text(text)
    copy(scene.folder, scene.changed)
    (scene.changed / "edited").write_text("new")
    (scene.changed / "gone").unlink()
    (scene.changed / "made/deep").mkdir(parents=True)
    (scene.changed / "made/deep/file").write_text("made")
    remove(scene.changed / "dir")
    (scene.changed / "dir").symlink_to("made")
    (scene.changed / "mode").chmod(0o500)
    (scene.changed / "turns").unlink()
    (scene.changed / "turns").mkdir()
    (scene.changed / "turns/now").write_text("a folder")


def fill_at_random(scene: Scene, random: Random, size: int = 25) -> None:
    """Grow a workspace, and edit it as a command would."""
    grow(scene.folder, random, size)
    copy(scene.folder, scene.changed)
    for _ in range(random.randrange(1, size)):
        edit(scene.changed, random)
    close_folders(random.choice((scene.folder, scene.changed)), random)


def forget_touched(found: dict[str, Entry], change_set: ChangeSet) -> dict[str, Entry]:
    """Files that differ in their time only are no change."""
    changed = {one.path for one in change_set.changes}
    return {path: entry if path in changed else (*entry[:4], 0) for path, entry in found.items()}


class KilledError(BaseException):
    """The process ends here."""


class KilledJournal(Journal):
    """A journal of a process that is killed before or after a step."""

    #: Steps until then; negative: it is not killed.
    left = -1

    def _pass(self) -> None:
        cls = type(self)
        if cls.left == 0:
            cls.left = -1
            raise KilledError
        cls.left -= 1

    def begin(self, header: Any) -> None:
        self._pass()
        super().begin(header)
        self._pass()

    def open_folder(self, path: str) -> None:
        super().open_folder(path)
        self._pass()

    def stage(self, index: int) -> None:
        self._pass()

    def ready(self, record: Any) -> None:
        self._pass()
        super().ready(record)
        self._pass()

    def apply(self, index: int) -> None:
        self._pass()

    def done(self) -> None:
        super().done()
        self._pass()

    def clean(self, index: int) -> None:
        self._pass()

    def close(self) -> None:
        self._pass()
        super().close()


def skip_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave contents in memory. Only a power cut would lose them, and thousands of flushes take minutes."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(commit, "sync_filesystem", lambda folder: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def commit_killed(scene: Scene, change_set: ChangeSet, steps: int) -> bool:
    """Commit, and be killed after so many steps. False: it came to its end."""
    KilledJournal.left = steps
    try:
        assert isinstance(scene.store.commit(change_set, scene.workspace), Committed)
    except KilledError:
        return True
    finally:
        KilledJournal.left = -1
    return False


def check_all_kills(scene: Scene, undo: bool) -> None:
    change_set = scene.plan()
    before, after = (forget_touched(snapshot(one), change_set) for one in (scene.folder, scene.changed))
    if undo:
        assert isinstance(scene.store.commit(change_set, scene.workspace), Committed)
        change_set, before, after = change_set.invert(), after, before
    steps = 0
    while commit_killed(scene, change_set, steps):
        recovered = scene.store.recover()
        found = forget_touched(snapshot(scene.folder), change_set)
        assert found in (before, after), steps
        expected = "completed" if found == after else "rolled_back"
        assert before == after or all(one.outcome == expected for one in recovered)
        assert scene.list_left() == []
        if found == after != before:
            assert isinstance(scene.store.commit(change_set.invert(), scene.workspace), Committed)
        steps += 1
    assert forget_touched(snapshot(scene.folder), change_set) == after
    assert steps > 3
