"""Commits of change sets: all or nothing, drift, and undo to the byte."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from interlock.changes.commit import CommitFailed, Committed, Drifted

from .scenes import Scene, fill, fill_at_random, forget_touched
from .trees import snapshot


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    fill(scene)
    yield scene
    scene.close()


@pytest.mark.requirement("P27")
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


@pytest.mark.requirement("P27")
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


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_commit_and_undo(seed: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    fill_at_random(scene, Random(seed))
    before, change_set = snapshot(scene.folder), scene.plan()

    done = scene.store.commit(change_set, scene.workspace)
    assert isinstance(done, Committed), done
    assert forget_touched(snapshot(scene.folder), change_set) == forget_touched(snapshot(scene.changed), change_set)
    undone = scene.store.commit(change_set.invert(), scene.workspace)

    assert isinstance(undone, Committed), undone
    assert snapshot(scene.folder) == before
    assert scene.list_left() == []
    scene.close()
