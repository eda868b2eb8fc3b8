"""The fingerprint of a workspace: any edit changes it, what tests and checks write for themselves does not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.tools.shell.fingerprint import (
    FolderListings,
    WorkspaceChanges,
    WorkspaceFingerprint,
    compare_fingerprints,
    take_fingerprint,
)


def of(folder: Path, max_files: int = 20_000, listings: FolderListings | None = None) -> WorkspaceFingerprint:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return take_fingerprint(root, max_files=max_files, listings=listings)
    finally:
        os.close(root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sum.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "test_sum.py").write_text("from src.sum import add\n\ndef test_add():\n    assert add(1, 2) == 3\n")
    return tmp_path


def edit(project: Path) -> None:
    (project / "src" / "sum.py").write_text("def add(a, b):\n    return a - b\n")


def edit_and_restore_the_time(project: Path) -> None:
    file = project / "src" / "sum.py"
    before = file.stat()
    edit(project)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch(project: Path) -> None:
    os.utime(project / "test_sum.py", ns=(1, 1))


def add(project: Path) -> None:
    (project / "src" / "new.py").touch()


def add_folder(project: Path) -> None:
    (project / "empty").mkdir()


def delete(project: Path) -> None:
    (project / "test_sum.py").unlink()


def rename(project: Path) -> None:
    (project / "test_sum.py").rename(project / "test_all.py")


def link(project: Path) -> None:
    (project / "link").symlink_to("/etc")


@pytest.mark.parametrize("change", [edit, edit_and_restore_the_time, touch, add, add_folder, delete, rename, link])
def test_whatever_changes_a_file_changes_the_digest(project: Path, change: Callable[[Path], None]) -> None:
    before = of(project)
    assert of(project) == before

    change(project)

    assert of(project).digest != before.digest
    assert compare_fingerprints(before, of(project)).count


def test_changes_are_listed_by_path(project: Path) -> None:
    before = of(project)

    edit(project)
    add(project)
    delete(project)

    assert compare_fingerprints(before, of(project)) == WorkspaceChanges(
        ("src/new.py",), ("src/sum.py",), ("test_sum.py",), True
    )


def test_a_run_of_pytest_changes_nothing(project: Path) -> None:
    before = of(project)

    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=project, capture_output=True, check=True)

    assert b"1 passed" in ran.stdout
    assert (project / ".pytest_cache").exists()
    assert of(project).digest == before.digest
    assert compare_fingerprints(before, of(project)).count == 0


def test_a_commit_is_a_change_and_makes_no_other_digest(project: Path) -> None:
    (project / ".git" / "refs" / "heads").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    before = of(project)

    (project / ".git" / "refs" / "heads" / "main").write_text("0" * 40)

    assert of(project).digest == before.digest
    assert compare_fingerprints(before, of(project)).modified == (".git",)


def test_an_installed_package_is_a_change_and_makes_no_other_digest(project: Path) -> None:
    before = of(project)

    (project / "node_modules" / "left-pad").mkdir(parents=True)

    assert of(project).digest == before.digest
    assert compare_fingerprints(before, of(project)).created == ("node_modules",)


def test_a_folder_that_is_only_called_like_a_build_is_looked_at(project: Path) -> None:
    (project / "target").mkdir()
    before = of(project)

    (project / "target" / "lib.rs").touch()

    assert of(project).digest != before.digest


def test_a_build_beside_its_settings_is_not_looked_at(project: Path) -> None:
    (project / "target").mkdir()
    (project / "Cargo.toml").touch()
    before = of(project)

    (project / "target" / "lib.rs").touch()

    assert of(project).digest == before.digest


def test_more_files_than_the_limit_are_said_and_nothing_is_claimed_about_them(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"file{number}").touch()

    cut = of(tmp_path, max_files=4)

    assert (cut.files, cut.truncated, cut.digest.startswith("truncated:")) == (4, True, True)
    assert not compare_fingerprints(cut, of(tmp_path, max_files=4)).complete
    assert not of(tmp_path, max_files=5).truncated


def test_a_tree_without_end_is_cut(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(100):
        deep /= "d"
    deep.mkdir(parents=True)

    assert of(tmp_path).truncated


def test_nothing_is_followed_nor_opened(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    assert sorted(of(tmp_path).stamps) == ["loop", "pipe"]


def test_names_that_are_no_text_are_names(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n")).touch()

    assert of(tmp_path).files == 1


@given(st.sets(st.sampled_from("abcdef"), min_size=1), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_the_same_digest_means_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, first: set[str], second: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name in first:
        (folder / name).touch()
    before = of(folder)
    for name in first ^ second:
        (folder / name).unlink(missing_ok=True) if name in first else (folder / name).touch()

    assert (of(folder).digest == before.digest) == (first == second)


_LATER = 1 << 62
_NAMES = st.sampled_from(["a", "b", "target", "Cargo.toml", "x.pyc", "__pycache__"])
_PLACES = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)


def _create(root: Path, place: str, _other: str) -> None:
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).write_text(place)


def _make_folder(root: Path, place: str, _other: str) -> None:
    (root / place).mkdir(parents=True)


def _remove(root: Path, place: str, _other: str) -> None:
    if (root / place).is_dir():
        shutil.rmtree(root / place)
    else:
        (root / place).unlink()


def _move(root: Path, place: str, other: str) -> None:
    (root / place).rename(root / other)


def _link_and_write(root: Path, place: str, other: str) -> None:
    """Write to a file by another name, which is gone afterwards."""
    os.link(root / place, root / other)
    (root / other).write_text("by another name")
    (root / other).unlink()


def _set_back(root: Path, place: str, other: str) -> None:
    """Change a folder, and set back every time that can be set."""
    folder = (root / place).parent
    before = folder.stat()
    (root / place).rename(folder / Path(other).name)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _wait_for_tick(probe: Path) -> None:
    """Wait until what changes next has another time than what changed last."""
    probe.touch()
    before = probe.stat().st_ctime_ns
    for _ in range(1_000_000):
        os.utime(probe)
        if probe.stat().st_ctime_ns != before:
            return
    pytest.fail("the clock of this file system stands still")


_CHANGES = st.sampled_from([_create, _make_folder, _remove, _move, _link_and_write, _set_back])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_CHANGES, _PLACES, _PLACES), max_size=8))
def test_remembered_folders_give_the_same_fingerprint(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[Callable[[Path, str, str], None], str, str]]
) -> None:
    folder, probe = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("clock") / "probe"
    _create(folder, "a/b/a", "")
    _create(folder, "target/a", "")
    listings = FolderListings(now=lambda: _LATER)
    assert of(folder, listings=listings) == of(folder)

    for change, place, other in changes:
        _wait_for_tick(probe)
        with suppress(OSError):
            change(folder, place, other)
        assert of(folder, listings=listings) == of(folder)


@pytest.mark.parametrize(("now", "expected"), [(lambda: _LATER, [3, 0, 1]), (lambda: 0, [3, 3, 3])])
def test_only_settled_folders_are_remembered(
    project: Path, monkeypatch: pytest.MonkeyPatch, now: Callable[[], int], expected: list[int]
) -> None:
    """A folder that changed a moment ago is listed again, since the next change may have the same time."""
    (project / "docs").mkdir()
    _wait_for_tick(project / "docs" / "probe")
    listings, scandir, listed = FolderListings(now), os.scandir, list[int]()

    def count(folder: int) -> Any:
        listed[-1] += 1
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", count)
    for act in (lambda: None, lambda: edit(project), lambda: add(project)):
        act()
        listed.append(0)
        of(project, listings=listings)

    assert listed == expected
