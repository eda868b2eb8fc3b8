"""Opening beneath a folder: the kernel's way and the walk do the same, whatever the path."""

import ctypes
import os
import stat
from collections.abc import Iterator
from errno import EAGAIN, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSYS, ENOTDIR, EPERM, EXDEV
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.sandbox.host import beneath
from interlock.sandbox.host.beneath import (
    PATH_ONLY,
    PathOpener,
    open_real_path,
    open_real_path_by_kernel,
    open_real_path_by_walk,
    walk_beneath,
)
from tests.each import each
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.sandbox.ways import both_ways

NAMES = ["a", "b", "f", "up", "here", "round", "out", "top", "deep", "slash", "loop", "gone", "none", ".", "..", ""]
FLAGS = [
    os.O_RDONLY,
    os.O_RDONLY | os.O_DIRECTORY,
    os.O_RDONLY | os.O_NOFOLLOW,
    PATH_ONLY,
    PATH_ONLY | os.O_NOFOLLOW,
    PATH_ONLY | os.O_DIRECTORY,
    os.O_RDWR,
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders, a file, and links of all kinds. The file outside has the name of one inside."""
    folder = tmp_path_factory.mktemp("beneath")
    (folder / "f").write_text("outside")
    root = folder / "root"
    (root / "a/b").mkdir(parents=True)
    for place in (root, root / "a", root / "a/b"):
        (place / "f").write_text("inside")
        for name, target in (
            ("up", ".."),
            ("here", "."),
            ("round", "../a/b/.."),
            ("out", "../../../f"),
            ("top", "/"),
            ("deep", "b/up/b"),
            ("slash", "f/"),
            ("loop", "loop/x"),
            ("gone", "none/f"),
        ):
            (place / name).symlink_to(target)
    return root


@pytest.fixture
def root_fd(tree: Path) -> Iterator[int]:
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def outcome(reach: PathOpener, root_fd: int, path: str, flags: int) -> int | tuple[int, str]:
    """The error, or which file and where."""
    try:
        reached = reach(root_fd, path, flags, 0)
    except OSError as error:
        return error.errno or 0
    status = os.fstat(reached.fd)
    os.close(reached.fd)
    return status.st_ino, reached.relative


@both_ways
@each(
    "path, expected",
    [
        ("f", "f"),
        ("a/../f", "f"),
        ("a/b/up/f", "a/f"),
        ("a/deep/f", "a/b/f"),
        ("a/round", "a"),
        (".", "."),
        ("a/..", "."),
        ("a/here/./b/", "a/b"),
    ],
)
def test_what_lies_beneath_is_opened_and_its_real_place_told(
    reach: PathOpener, path: str, expected: str, root_fd: int, tree: Path
) -> None:
    assert outcome(reach, root_fd, path, os.O_RDONLY) == ((tree / expected).stat().st_ino, expected)


@both_ways
@each(
    "path, error",
    [
        ("..", EXDEV),
        ("up", EXDEV),
        ("a/../../root/f", EXDEV),
        ("out", EXDEV),
        ("a/b/out", EXDEV),
        ("top/etc", EXDEV),
        ("/etc/passwd", EXDEV),
        ("none", ENOENT),
        ("none/../f", ENOENT),
        ("gone", ENOENT),
        ("", ENOENT),
        ("f/", ENOTDIR),
        ("f/.", ENOTDIR),
        ("f/..", ENOTDIR),
        ("slash", ENOTDIR),
        ("loop", ELOOP),
        ("n" * 256, ENAMETOOLONG),
        ("a/../" * 900, ENAMETOOLONG),
    ],
)
def test_what_leads_elsewhere_or_nowhere_is_an_error(reach: PathOpener, path: str, error: int, root_fd: int) -> None:
    assert outcome(reach, root_fd, path, os.O_RDONLY) == error


@both_ways
def test_a_nul_is_no_path(reach: PathOpener, root_fd: int) -> None:
    with pytest.raises(ValueError, match="NUL"):
        reach(root_fd, "f\0", os.O_RDONLY, 0)


@pytest.mark.skipif(not beneath.has_openat2(), reason="this kernel has no openat2")
@settings(database=None, deadline=None)
@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.sampled_from(FLAGS))
def test_the_walk_does_what_the_kernel_does(tree: Path, names: list[str], flags: int) -> None:
    root_fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = "/".join(names)
        assert outcome(open_real_path_by_walk, root_fd, path, flags) == outcome(
            open_real_path_by_kernel, root_fd, path, flags
        )
    finally:
        os.close(root_fd)


@both_ways
def test_a_new_file_is_made_beneath_and_never_through_a_link_that_leads_out(reach: PathOpener, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/dangling").symlink_to("../out/made")
    (tmp_path / "root/inner").symlink_to("made")
    root_fd = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path, flags, error in (
            ("dangling", os.O_CREAT, EXDEV),
            ("dangling", os.O_CREAT | os.O_EXCL, EEXIST),
            ("../out/made", os.O_CREAT, EXDEV),
            (".", os.O_CREAT, EISDIR),
        ):
            assert outcome(reach, root_fd, path, os.O_WRONLY | flags) == error
        made = reach(root_fd, "inner", os.O_WRONLY | os.O_CREAT, 0o640)
        os.close(made.fd)
    finally:
        os.close(root_fd)
    assert made.relative == "made"
    assert stat.S_IMODE((tmp_path / "root/made").stat().st_mode) & ~0o640 == 0
    assert list((tmp_path / "out").iterdir()) == []


@both_ways
def test_forty_links_are_followed_and_not_one_more(reach: PathOpener, tmp_path: Path) -> None:
    (tmp_path / "link0").write_text("x")
    for number in range(1, 42):
        (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
    root_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert outcome(reach, root_fd, "link40", os.O_RDONLY) == ((tmp_path / "link0").stat().st_ino, "link0")
        assert outcome(reach, root_fd, "link41", os.O_RDONLY) == ELOOP
    finally:
        os.close(root_fd)


@both_ways
def test_no_descriptor_stays_open_and_none_is_inherited(reach: PathOpener, root_fd: int) -> None:
    before = set(os.listdir("/dev/fd"))
    for path in ("a/b/f", "a/b/up/none", "a/b/out", "a/b/up/../f", "f/x"):
        outcome(reach, root_fd, path, os.O_RDONLY)
    assert set(os.listdir("/dev/fd")) == before
    reached = reach(root_fd, "f", os.O_RDONLY, 0)
    assert not os.get_inheritable(reached.fd)
    os.close(reached.fd)


def test_the_walk_needs_no_more_than_the_right_to_pass_through_a_folder(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/f").write_text("x")
    (tmp_path / "closed").chmod(0o100)
    root_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(walk_beneath(root_fd, "closed/f", os.O_RDONLY))
    finally:
        os.close(root_fd)
        (tmp_path / "closed").chmod(0o700)


@pytest.mark.skipif(not beneath.has_fd_links(), reason="the kernel does not tell")
def test_an_open_file_is_where_it_is_now_or_where_it_was_last(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/f").write_text("x")
    root_fd = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    fd = os.open(tmp_path / "root/f", os.O_RDONLY)
    try:
        (tmp_path / "root/f").rename(tmp_path / "root/g")
        assert beneath.find_real_path(root_fd, fd) == "g"
        (tmp_path / "root").rename(tmp_path / "moved")
        assert beneath.find_real_path(root_fd, fd) == "g"
        (tmp_path / "moved/g").rename(tmp_path / "outside")
        with pytest.raises(OSError, match=os.strerror(EXDEV)):
            beneath.find_real_path(root_fd, fd)
        (tmp_path / "outside").rename(tmp_path / "moved/h")
        (tmp_path / "moved/h").unlink()
        assert beneath.find_real_path(root_fd, fd) == "h"
    finally:
        os.close(fd)
        os.close(root_fd)


def test_the_walk_holds_only_so_many_folders(tmp_path: Path) -> None:
    deepest = tmp_path / "/".join("d" * 300)
    deepest.mkdir(parents=True)
    root_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert outcome(open_real_path_by_walk, root_fd, "d/" * 200, os.O_RDONLY) != ENAMETOOLONG
        assert outcome(open_real_path_by_walk, root_fd, "d/" * 300, os.O_RDONLY) == ENAMETOOLONG
    finally:
        os.close(root_fd)


class FakeLibc:
    """A kernel that has another answer to `openat2`."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.calls = 0

    def syscall(self, *_: Any) -> int:
        self.calls += 1
        ctypes.set_errno(self.error)
        return -1


@pytest.mark.parametrize("error", [ENOSYS, EPERM])
def test_where_the_kernel_cannot_or_may_not_the_walk_is_taken(
    error: int, monkeypatch: pytest.MonkeyPatch, root_fd: int
) -> None:
    libc = FakeLibc(error)
    monkeypatch.setattr("interlock.sandbox.host.beneath._libc", lambda: libc)
    beneath.has_openat2.cache_clear()
    try:
        os.close(open_real_path(root_fd, "a/f", os.O_RDONLY).fd)
        with pytest.raises(OSError, match=os.strerror(EXDEV)):
            open_real_path(root_fd, "out", os.O_RDONLY)
    finally:
        beneath.has_openat2.cache_clear()
    assert libc.calls <= 1


@pytest.mark.skipif(not beneath.has_openat2(), reason="this kernel has no openat2")
def test_a_kernel_that_never_gets_to_an_answer_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch, root_fd: int
) -> None:
    libc = FakeLibc(EAGAIN)
    monkeypatch.setattr("interlock.sandbox.host.beneath._libc", lambda: libc)
    os.close(open_real_path(root_fd, "a/../f", os.O_RDONLY).fd)
    assert 1 < libc.calls < 100


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user already")
def test_the_same_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
