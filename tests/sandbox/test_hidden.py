"""Files that commands must not see: found in a whole workspace, and found again when they come later."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import time_ns

import pytest

from interlock.sandbox.hidden import Found, HiddenFiles


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def long_after() -> int:
    return time_ns() + 10**10


def hidden_files(root: int) -> HiddenFiles:
    return HiddenFiles(root, lambda path: path.endswith("secret"), lambda path: path.endswith("frozen"))


def test_files_and_folders_are_found_at_any_depth(tmp_path: Path, root: int) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "secret").touch()
    (tmp_path / "frozen").touch()

    assert hidden_files(root).find() == Found(("a/b/secret",), ("frozen",))


def test_nothing_in_a_hidden_folder_is_looked_at(tmp_path: Path, root: int) -> None:
    (tmp_path / "secret" / "deep").mkdir(parents=True)
    (tmp_path / "secret" / "deep" / "secret").touch()

    assert hidden_files(root).find().hidden == ("secret",)


def test_a_file_that_comes_later_is_found(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").mkdir()
    looked_at: list[str] = []
    files = HiddenFiles(root, lambda path: looked_at.append(path) or path.endswith("secret"), bool, long_after)
    assert files.find().hidden == ()

    (tmp_path / "a" / "secret").touch()

    assert files.find().hidden == ("a/secret",)
    assert looked_at == ["a", "a/secret"], "the folder that did not change is not read again"


def test_a_folder_that_changed_a_moment_ago_is_read_again_whatever_its_time_says(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").touch()
    looked_at: list[str] = []
    files = HiddenFiles(root, lambda path: bool(looked_at.append(path)), bool)

    files.find()
    files.find()

    assert looked_at == ["a", "a"]


def test_a_file_that_went_is_not_found_again(tmp_path: Path, root: int) -> None:
    (tmp_path / "secret").touch()
    files = hidden_files(root)
    assert files.find().hidden == ("secret",)

    (tmp_path / "secret").unlink()

    assert files.find().hidden == ()


def test_a_link_is_a_name_and_is_not_followed(tmp_path: Path, root: int) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").touch()
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "to_secret").symlink_to(outside)

    assert hidden_files(root).find().hidden == ("to_secret",)


def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").mkdir()
    files = hidden_files(root)
    files.find()
    (tmp_path / "a").rmdir()
    (tmp_path / "a").symlink_to("/")

    assert files.find() == Found((), ())
