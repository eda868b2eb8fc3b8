"""Files that commands must not see: found in a whole workspace, and found again when they come later."""

import os
from collections.abc import Iterator
from errno import EACCES, EIO, EMFILE
from pathlib import Path
from time import time_ns

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.workspace.hidden_files import HiddenFileScanner, WorkspaceScan

from .ordinary_user import pytest_as_ordinary_user


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def long_after() -> int:
    return time_ns() + 10**10


def hidden_files(root: int) -> HiddenFileScanner:
    return HiddenFileScanner(root, lambda path: path.endswith("secret"), lambda path: path.endswith("frozen"))


def test_files_and_folders_are_found_at_any_depth(tmp_path: Path, root: int) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "secret").touch()
    (tmp_path / "frozen").touch()

    assert hidden_files(root).scan() == WorkspaceScan(("a/b/secret",), ("frozen",))


def test_nothing_in_a_hidden_folder_is_looked_at(tmp_path: Path, root: int) -> None:
    (tmp_path / "secret" / "deep").mkdir(parents=True)
    (tmp_path / "secret" / "deep" / "secret").touch()

    assert hidden_files(root).scan().hidden == ("secret",)


def test_a_file_that_comes_later_is_found(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").mkdir()
    looked_at: list[str] = []
    files = HiddenFileScanner(root, lambda path: looked_at.append(path) or path.endswith("secret"), bool, long_after)
    assert files.scan().hidden == ()

    (tmp_path / "a" / "secret").touch()

    assert files.scan().hidden == ("a/secret",)
    assert looked_at == ["a", "a/secret"], "the folder that did not change is not read again"


def test_a_folder_that_changed_a_moment_ago_is_read_again_whatever_its_time_says(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").touch()
    looked_at: list[str] = []
    files = HiddenFileScanner(root, lambda path: bool(looked_at.append(path)), bool)

    files.scan()
    files.scan()

    assert looked_at == ["a", "a"]


def test_a_file_that_went_is_not_found_again(tmp_path: Path, root: int) -> None:
    (tmp_path / "secret").touch()
    files = hidden_files(root)
    assert files.scan().hidden == ("secret",)

    (tmp_path / "secret").unlink()

    assert files.scan().hidden == ()


def test_a_link_is_a_name_and_is_not_followed(tmp_path: Path, root: int) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").touch()
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "to_secret").symlink_to(outside)

    assert hidden_files(root).scan().hidden == ("to_secret",)


def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").mkdir()
    files = hidden_files(root)
    files.scan()
    (tmp_path / "a").rmdir()
    (tmp_path / "a").symlink_to("/")

    assert files.scan() == WorkspaceScan((), ())


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("folder", [".git/objects", ".hg/store", ".svn/pristine", "node_modules/x"])
def test_no_folder_is_left_out(tmp_path: Path, root: int, folder: str) -> None:
    (tmp_path / folder / "app").mkdir(parents=True)
    (tmp_path / folder / "app" / "secret").touch()

    assert hidden_files(root).scan().hidden == (f"{folder}/app/secret",)


@pytest.mark.requirement("R232")
def test_a_folder_with_a_path_that_is_too_long_is_hidden_as_a_whole(tmp_path: Path, root: int) -> None:
    folder = root
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=folder)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        if folder != root:
            os.close(folder)
        folder = inner
    os.close(folder)

    (hidden,) = hidden_files(root).scan().hidden

    assert hidden == "/".join(["d" * 200] * 15)
    assert (tmp_path / hidden).is_dir(), "a path that can be used"


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("error", [EACCES, EMFILE, EIO])
def test_a_folder_that_cannot_be_looked_into_is_hidden_as_a_whole(
    tmp_path: Path, root: int, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed" / "deep").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    really_open = os.open

    def refuse(path: str, flags: int, *, dir_fd: int) -> int:
        if path.startswith("closed"):
            raise OSError(error, "no")
        return really_open(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)

    assert hidden_files(root).scan() == WorkspaceScan(("closed",), ())


@pytest.mark.requirement("R232")
@pytest.mark.skipif("os.geteuid() == 0", reason="no mode closes a folder to root")
@pytest.mark.parametrize("mode", [0o000, 0o311, 0o644])
def test_a_folder_that_was_closed_by_its_mode_is_hidden_as_a_whole(tmp_path: Path, root: int, mode: int) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "secret").touch()
    files = HiddenFileScanner(root, lambda path: path.endswith("secret"), bool, long_after)
    assert files.scan().hidden == ("app/secret",)

    (tmp_path / "app").chmod(mode)
    assert files.scan().hidden == ("app",)

    (tmp_path / "app").chmod(0o755)
    assert files.scan().hidden == ("app/secret",)


@pytest.mark.skipif("os.geteuid() != 0", reason="this is an ordinary user")
def test_a_closed_folder_is_hidden_when_we_are_an_ordinary_user() -> None:
    pytest_as_ordinary_user("tests/sandbox/test_hidden.py", "-k", "closed_by_its_mode")


def test_two_findings_at_the_same_place_are_equal(tmp_path: Path, root: int) -> None:
    for number in range(50):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "secret").touch()
    first = hidden_files(root).scan()
    (tmp_path / "7" / "secret").rename(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / "7" / "secret")

    assert hidden_files(root).scan() == first


def test_what_git_obeys_is_held_and_a_new_repository_is_told(tmp_path: Path, root: int) -> None:
    (tmp_path / ".git" / "modules" / "libs" / "x").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for name in (".git/HEAD", ".git/index", ".git/modules/libs/x/config", "a/.git"):
        (tmp_path / name).touch()
    (tmp_path / "b" / ".git").symlink_to("../.git")

    found = hidden_files(root).scan()

    assert found.read_only == (".git/modules/libs/x/config", "a/.git")
    assert found.watched == (".git/HEAD", "b/.git")


def test_a_workspace_with_too_many_folders_is_refused_in_words(
    tmp_path: Path, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.sandbox.workspace.hidden_files._MAX_FOLDERS", 3)
    for number in range(3):
        (tmp_path / f"{number}").mkdir()

    with pytest.raises(SandboxSetupError, match=r"more than 3 folders.* Ask the user"):
        hidden_files(root).scan()


def test_a_folder_that_moves_while_it_is_looked_for_is_found_where_it_went(tmp_path: Path, root: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "secret").touch()
    moves = ["z"]

    def hides(path: str) -> bool:
        if path == "a" and moves:
            (tmp_path / "a").rename(tmp_path / moves.pop())
        return path.endswith("secret")

    assert HiddenFileScanner(root, hides, lambda path: False).scan().hidden == ("z/secret",)
