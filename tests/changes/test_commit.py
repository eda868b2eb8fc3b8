"""Commits of change sets: all or nothing, drift, and undo to the byte."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import CommitFailed, Committed, Drifted
from interlock.changes.store import ChangeStore
from interlock.sandbox.workspace.workspace import Workspace
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .trees import Entry, close_folders, compare, copy, edit, grow, remove, snapshot


class Scene:
    """A workspace, and the same folder as a command would leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "workspace"
        self.changed = folder / "changed"
        self.folder.mkdir()
        self.store = ChangeStore(folder / "store")
        self.workspace = Workspace(self.folder)

    def plan(self) -> ChangeSet:
        return compare(self.store, self.folder, self.changed)

    def close(self) -> None:
        self.workspace.close()
        self.store.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    for name, text in (
        ("same", "same"),
        ("edited", "old"),
        ("gone", "gone"),
        ("dir/inner", "inner"),
        ("turns", "file"),
        ("mode/x", ""),
    ):
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
    yield scene
    scene.close()


def test_commit_makes_exactly_the_change(scene: Scene) -> None:
    result = scene.store.commit(scene.plan(), scene.workspace)

    assert isinstance(result, Committed)
    assert snapshot(scene.folder) == snapshot(scene.changed)


def test_inverse_restores_to_the_byte(scene: Scene) -> None:
    before, change_set = snapshot(scene.folder), scene.plan()
    scene.store.commit(change_set, scene.workspace)

    result = scene.store.commit(change_set.invert(), scene.workspace)

    assert isinstance(result, Committed)
    assert snapshot(scene.folder) == before


def _write_new(folder: Path) -> None:
    (folder / "made").mkdir()


DRIFTS: dict[str, Callable[[Path], object]] = {
    "edited": lambda folder: (folder / "edited").write_text("by hand"),
    "gone": lambda folder: (folder / "gone").unlink(),
    "made": _write_new,
    "dir/another": lambda folder: (folder / "dir/another").write_text("new in a folder that goes"),
    "turns": lambda folder: (folder / "turns").chmod(0o600),
    "mode": lambda folder: (folder / "mode").chmod(0o711),
    "dir": lambda folder: (folder / "dir").rename(folder / "elsewhere"),
}


@pytest.mark.parametrize("path", DRIFTS)
def test_drift_changes_nothing(scene: Scene, path: str) -> None:
    change_set = scene.plan()
    DRIFTS[path](scene.folder)
    before = snapshot(scene.folder)

    result = scene.store.commit(change_set, scene.workspace)

    assert isinstance(result, Drifted)
    assert [one.path for one in result.files] == [path]
    assert snapshot(scene.folder) == before


def test_drifted_files_can_be_skipped(scene: Scene) -> None:
    change_set = scene.plan()
    (scene.folder / "edited").write_text("by hand")

    result = scene.store.commit(change_set, scene.workspace, skip_drifted=True)

    assert isinstance(result, Committed)
    assert [one.path for one in result.drifted] == ["edited"]
    assert "edited" not in [one.path for one in result.change_set.changes]
    expected = {**snapshot(scene.changed), "edited": snapshot(scene.folder)["edited"]}
    assert snapshot(scene.folder) == expected


def test_missing_content_changes_nothing(scene: Scene) -> None:
    change_set, before = scene.plan(), snapshot(scene.folder)
    damaged = next(one for one in change_set.changes if one.path == "made/deep/file").after.digest
    kept = Path(scene.store.folder, "objects", damaged)
    kept.write_bytes(b"not that")

    first = scene.store.commit(change_set, scene.workspace)
    kept.unlink()
    second = scene.store.commit(change_set, scene.workspace)

    assert isinstance(first, CommitFailed)
    assert "damaged" in first.reason
    assert isinstance(second, CommitFailed)
    assert second.path == "made/deep/file"
    assert snapshot(scene.folder) == before


def test_a_link_in_place_of_a_folder_leads_nowhere(scene: Scene, tmp_path: Path) -> None:
    (scene.folder / "sub").mkdir()
    (scene.changed / "sub").mkdir()
    (scene.changed / "sub/file").write_text("x")
    change_set = scene.plan()
    outside = tmp_path / "outside"
    outside.mkdir()
    (scene.folder / "sub").rmdir()
    (scene.folder / "sub").symlink_to(outside)

    assert isinstance(scene.store.commit(change_set, scene.workspace), Drifted)
    assert os.listdir(outside) == []


def _forget_touched(found: dict[str, Entry], change_set: ChangeSet) -> dict[str, Entry]:
    """Files that differ in their time only are no change."""
    changed = {one.path for one in change_set.changes}
    return {path: entry if path in changed else (*entry[:4], 0) for path, entry in found.items()}


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_commit_and_undo(seed: int, tmp_path: Path) -> None:
    random, scene = Random(seed), Scene(tmp_path)
    grow(scene.folder, random, 25)
    copy(scene.folder, scene.changed)
    for _ in range(random.randrange(1, 25)):
        edit(scene.changed, random)
    close_folders(random.choice((scene.folder, scene.changed)), random)
    before, change_set = snapshot(scene.folder), scene.plan()

    done = scene.store.commit(change_set, scene.workspace)
    assert isinstance(done, Committed), done
    assert _forget_touched(snapshot(scene.folder), change_set) == _forget_touched(snapshot(scene.changed), change_set)
    undone = scene.store.commit(change_set.invert(), scene.workspace)

    assert isinstance(undone, Committed), undone
    assert snapshot(scene.folder) == before
    assert not list(Path(scene.store.folder, "journals").iterdir())
    scene.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
