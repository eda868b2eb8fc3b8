"""Writing a file: all of it or nothing, in its place and nowhere else."""

import os
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from errno import EACCES, EFBIG, ENOSPC
from pathlib import Path

import pytest

from interlock.sandbox.host.beneath import PathOpener
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.sandbox.ways import both_ways

pytestmark = pytest.mark.requirement("R229")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "old.txt").write_text("old")
    return root


@pytest.fixture
def workspace(root: Path) -> Iterator[Workspace]:
    with Workspace(root) as workspace:
        yield workspace


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in root.rglob("*")}


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@both_ways
def test_a_file_is_replaced_and_a_new_one_made_with_its_folders(reach: PathOpener, root: Path) -> None:
    with Workspace(root, opener=reach) as workspace:
        replaced = workspace.replace_file("old.txt", b"new", None)
        created = workspace.replace_file("x/y/z.txt", b"made", None)
    assert (replaced.relative, replaced.created, created.relative, created.created) == (
        "old.txt",
        False,
        "x/y/z.txt",
        True,
    )
    assert (replaced.stat, created.stat) == ((root / "old.txt").stat(), (root / "x/y/z.txt").stat())
    assert tree(root) == {"old.txt": "new", "x": "", "x/y": "", "x/y/z.txt": "made"}


def test_a_file_is_written_also_where_the_kernel_does_not_tell_places(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.sandbox.host.beneath.has_fd_links", lambda: False)
    with Workspace(root) as workspace:
        assert workspace.replace_file("x/new.txt", b"new", None).created
    assert tree(root) == {"old.txt": "old", "x": "", "x/new.txt": "new"}


def test_what_is_new_has_the_usual_mode(root: Path, workspace: Workspace) -> None:
    with umask(0o027):
        workspace.replace_file("x/new.txt", b"", None)
    assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("x", "x/new.txt")] == [0o750, 0o640]


def test_mode_and_attributes_of_the_old_file_are_kept(root: Path, workspace: Workspace) -> None:
    old = root / "old.txt"
    old.chmod(0o751)
    try:
        os.setxattr(old, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no attributes")
    workspace.replace_file("old.txt", b"new", None)
    assert stat.S_IMODE(old.stat().st_mode) == 0o751
    assert os.getxattr(old, "user.note") == b"kept"


def test_rights_that_were_given_to_the_old_content_are_not_given_to_the_new(root: Path, workspace: Workspace) -> None:
    (root / "old.txt").chmod(0o6755)
    workspace.replace_file("old.txt", b"new", None)
    assert stat.S_IMODE((root / "old.txt").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays_the_owner(root: Path, workspace: Workspace) -> None:
    os.chown(root / "old.txt", 65534, 65533)
    replaced = workspace.replace_file("old.txt", b"new", None)
    assert (replaced.stat.st_uid, replaced.stat.st_gid) == (65534, 65533)


def test_a_hard_link_elsewhere_keeps_its_content(root: Path, workspace: Workspace) -> None:
    outside = root.with_name("outside.txt")
    outside.hardlink_to(root / "old.txt")
    workspace.replace_file("old.txt", b"new", None)
    assert (outside.read_text(), (root / "old.txt").read_text()) == ("old", "new")


def test_the_caller_sees_the_present_file_right_before_and_may_stop(root: Path, workspace: Workspace) -> None:
    seen: list[bytes | None] = []

    def still(present: int | None) -> None:
        seen.append(None if present is None else os.read(present, 100))
        if present is not None:
            raise LookupError("it has changed")

    with pytest.raises(LookupError, match="changed"):
        workspace.replace_file("old.txt", b"new", None, precondition=still)
    workspace.replace_file("x/new.txt", b"new", None, precondition=still)
    assert seen == [b"old", None]
    assert tree(root) == {"old.txt": "old", "x": "", "x/new.txt": "new"}


def test_folders_that_were_made_for_nothing_are_removed(root: Path, workspace: Workspace) -> None:
    def still(_: int | None) -> None:
        assert (root / "x/y").is_dir()
        raise LookupError

    with pytest.raises(LookupError):
        workspace.replace_file("x/y/new.txt", b"new", None, precondition=still)
    assert tree(root) == {"old.txt": "old"}


@pytest.mark.parametrize("name", ["os.write", "os.fsync", "os.replace", "os.fchmod"])
def test_whatever_fails_the_old_file_stays_and_nothing_beside_it(
    name: str, monkeypatch: pytest.MonkeyPatch, root: Path, workspace: Workspace
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(name, fail)
        with pytest.raises(OSError, match="full"):
            workspace.replace_file("old.txt", b"new", None)
    assert tree(root) == {"old.txt": "old"}


def test_a_file_larger_than_the_limit_changes_nothing(root: Path, workspace: Workspace) -> None:
    script = (
        "import resource, signal, sys; from interlock.sandbox.workspace.workspace import Workspace\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: Workspace(sys.argv[1]).replace_file('x/old.txt', b'n' * 10000, None)\n"
        "except OSError as error: print(error.errno)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True)
    assert int(ended.stdout) == EFBIG
    assert tree(root) == {"old.txt": "old"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
@pytest.mark.parametrize("closed", ["old.txt", "."])
def test_what_may_not_be_written_stays(closed: str, root: Path, workspace: Workspace) -> None:
    (root / closed).chmod(0o555)
    try:
        with pytest.raises(PermissionError) as refused:
            workspace.replace_file("old.txt", b"new", None)
    finally:
        (root / closed).chmod(0o755)
    assert refused.value.errno == EACCES
    assert tree(root) == {"old.txt": "old"}


@both_ways
def test_a_link_that_takes_the_name_at_the_last_moment_is_replaced_itself(reach: PathOpener, root: Path) -> None:
    root.with_name("outside.txt").write_text("outside")

    def still(_: int | None) -> None:
        (root / "old.txt").unlink()
        (root / "old.txt").symlink_to("../outside.txt")

    with Workspace(root, opener=reach) as workspace:
        workspace.replace_file("old.txt", b"new", None, precondition=still)
    assert root.with_name("outside.txt").read_text() == "outside"
    assert not (root / "old.txt").is_symlink()
    assert tree(root) == {"old.txt": "new"}


@both_ways
def test_a_folder_that_is_moved_out_meanwhile_gets_nothing(
    reach: PathOpener, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "x").mkdir()
    fsync = os.fsync

    def move(file: int) -> None:
        fsync(file)
        if (root / "x").exists():
            (root / "x").rename(root.with_name("moved"))

    with monkeypatch.context() as patched, Workspace(root, opener=reach) as workspace:
        patched.setattr("os.fsync", move)
        with pytest.raises(PathRefusedError, match="outside"):
            workspace.replace_file("x/new.txt", b"new", None)
    assert list(root.with_name("moved").iterdir()) == []


def test_a_folder_that_becomes_a_link_while_it_is_made_is_not_entered(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.with_name("outside").mkdir()
    mkdir = os.mkdir

    def swap(name: str, **options: int) -> None:
        mkdir(name, **options)
        (root / name).rmdir()
        (root / name).symlink_to("../outside")

    with monkeypatch.context() as patched:
        patched.setattr("os.mkdir", swap)
        with pytest.raises(PathRefusedError, match="link"):
            workspace.replace_file("x/new.txt", b"new", None)
    assert list(root.with_name("outside").iterdir()) == []


def test_too_many_new_folders_are_refused(root: Path, workspace: Workspace) -> None:
    with pytest.raises(PathRefusedError, match="64 new folders"):
        workspace.replace_file("n/" * 65 + "x", b"", None)
    assert tree(root) == {"old.txt": "old"}


def test_a_process_that_dies_leaves_the_old_content_or_the_new(root: Path) -> None:
    script = (
        "import os, sys; from interlock.sandbox.workspace.workspace import Workspace\n"
        "def die(_): os.kill(os.getpid(), 9)\n"
        "Workspace(sys.argv[1]).replace_file('old.txt', b'new', None, precondition=die)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(root)], check=False)
    assert ended.returncode == -9
    assert (root / "old.txt").read_text() == "old"


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user already")
def test_the_same_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)


def test_a_change_of_the_same_size_in_the_same_second_is_seen_by_programs_that_look_at_size_and_second(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").write_text("VALUE = 1\n")
    before = (tmp_path / "a.py").stat()

    with Workspace(tmp_path) as workspace:
        workspace.replace_file("a.py", b"VALUE = 2\n", None)

    after = (tmp_path / "a.py").stat()
    assert after.st_size == before.st_size
    assert int(after.st_mtime) > int(before.st_mtime)
