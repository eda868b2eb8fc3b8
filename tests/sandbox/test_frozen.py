"""Frozen places: no file tool writes them and commands see them read-only, by any name that leads there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.sandbox.host.programs import code_folders, runtime_folders
from interlock.sandbox.workspace import frozen_paths
from interlock.sandbox.workspace.frozen_paths import FrozenPaths, find_protected_unit
from interlock.sandbox.workspace.hidden_files import HiddenFileScanner
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace

from .ordinary_user import pytest_as_ordinary_user

pytestmark = pytest.mark.requirement("P21")

LIBRARY = "env/lib/site-packages"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the environment that "runs" this process."""
    root = tmp_path / "ws"
    (root / LIBRARY / "package").mkdir(parents=True)
    (root / LIBRARY / "package/module.py").write_text("old")
    runs_from(monkeypatch, root / "env", root / LIBRARY)
    return root


def runs_from(monkeypatch: pytest.MonkeyPatch, environment: Path, library: Path) -> None:
    monkeypatch.setattr(frozen_paths, "runtime_folders", lambda: (str(environment),))
    monkeypatch.setattr(frozen_paths, "code_folders", lambda: (str(library),))


@pytest.fixture
def workspace(root: Path) -> Iterator[Workspace]:
    with Workspace(root, frozen=FrozenPaths(str(root))) as workspace:
        yield workspace


def refusal(workspace: Workspace, path: str) -> tuple[str, str]:
    """Of a look and of a write, which say the same."""
    with pytest.raises(PathRefusedError) as looked:
        workspace.locate(path, writing=True)
    with pytest.raises(PathRefusedError) as written:
        workspace.replace_file(path, b"new", None)
    assert str(looked.value) == str(written.value)
    return written.value.kind, str(written.value)


def read_only(root: Path, places: FrozenPaths | None = None) -> tuple[str, ...]:
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return HiddenFileScanner(
            opened, lambda _: False, lambda _: False, frozen=places or FrozenPaths(str(root))
        ).scan()[1]
    finally:
        os.close(opened)


@pytest.mark.parametrize("path", ["env/new", f"{LIBRARY}/new.pth", f"{LIBRARY}/package/module.py", "env/a/b/c"])
def test_environment_is_not_written_by_name(workspace: Workspace, root: Path, path: str) -> None:
    kind, words = refusal(workspace, path)

    assert kind == "guarded"
    assert "belongs to the Python environment that Interlock runs in" in words
    assert sorted(os.listdir(root / "env")) == ["lib"]


def test_environment_is_not_written_through_a_link(workspace: Workspace, root: Path) -> None:
    (root / "link").symlink_to(LIBRARY)

    assert refusal(workspace, "link/new.pth")[0] == "guarded"


def test_environment_can_be_read(workspace: Workspace) -> None:
    with workspace.open_file(f"{LIBRARY}/package/module.py", None) as file:
        assert os.read(file.fd, 100) == b"old"


def test_hard_link_of_a_frozen_file_is_not_written(workspace: Workspace, root: Path) -> None:
    os.link(root / LIBRARY / "package/module.py", root / "mine.py")

    assert refusal(workspace, "mine.py") == (
        "guarded",
        "'mine.py' is another name of a file or folder that Interlock runs from or keeps, which tools do not write."
        " Ask the user to change it.",
    )
    assert (root / LIBRARY / "package/module.py").read_text() == "old"


def test_other_hard_links_are_written(workspace: Workspace, root: Path) -> None:
    (root / "one").write_text("old")
    os.link(root / "one", root / "other")

    assert not workspace.replace_file("other", b"new", None).created


def test_commands_see_environment_and_links_read_only(root: Path) -> None:
    (root / "mine").mkdir()
    os.link(root / LIBRARY / "package/module.py", root / "mine/linked.py")
    (root / "mine/own.py").touch()

    assert read_only(root) == ("env", "mine/linked.py")


def test_hard_link_that_comes_later_is_found(root: Path) -> None:
    """Linked files are looked up once: the frozen file has its second name by then, as an installer gives it."""
    os.link(root / LIBRARY / "package/module.py", root.parent / "cache")
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    files = HiddenFileScanner(opened, lambda _: False, lambda _: False, frozen=FrozenPaths(str(root)))
    assert files.scan().read_only == ("env",)

    os.link(root.parent / "cache", root / "later")

    assert files.scan().read_only == ("env", "later")
    os.close(opened)


def test_shared_packages_are_held_as_a_whole(root: Path) -> None:
    """A second environment shares files by the thousand, and a sandbox takes a limited number of mounts."""
    second = root / "second/lib/site-packages"
    (second / "package").mkdir(parents=True)
    (second / "own").mkdir()
    (second / "own/module.py").touch()
    os.link(root / LIBRARY / "package/module.py", second / "package/module.py")

    assert read_only(root) == ("env", "second/lib/site-packages/package")
    assert find_protected_unit("a/site-packages/single.py") == "a/site-packages/single.py"


def test_no_file_of_the_code_is_looked_at_without_a_linked_one_in_the_workspace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").touch()
    monkeypatch.setattr(frozen_paths, "_scan_linked_files", _fail)

    assert read_only(root) == ("env",)


def test_code_is_looked_through_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only(root)
    monkeypatch.setattr(frozen_paths, "_entries", _fail)

    assert read_only(root) == ("env",)


def _fail(_place: object) -> None:
    pytest.fail("nothing was to be looked at")


def test_own_files_are_hidden_and_not_written(root: Path) -> None:
    places = FrozenPaths(str(root))
    (root / "state").mkdir()
    (root / "state/key").touch()
    os.link(root / "state/key", root / "copy")
    places.add_own_paths([str(root / "state"), str(root / "policy.yaml")])
    with Workspace(root, frozen=places) as workspace:
        for path in ("state/key", "state/new", "policy.yaml"):
            assert "Interlock's own files" in refusal(workspace, path)[1]
            assert places.is_own_path(path)
        assert refusal(workspace, "copy")[0] == "guarded"
    assert "copy" in read_only(root, places)


def test_own_files_in_the_environment_are_hidden_too(root: Path) -> None:
    places = FrozenPaths(str(root))
    places.add_own_paths([str(root / "env/state")])

    assert places.is_own_path("env/state/key")
    assert not places.is_own_path("env/lib")


def test_workspace_in_own_files_is_refused(root: Path) -> None:
    with pytest.raises(ConfigurationError, match="the runtime's own"):
        FrozenPaths(str(root)).add_own_paths([str(root.parent)])


def test_workspace_in_the_environment_is_read_only(root: Path) -> None:
    inside = root / "env/project"
    inside.mkdir()
    with Workspace(inside, frozen=FrozenPaths(str(inside))) as workspace:
        assert refusal(workspace, "file")[0] == "guarded"


def test_everything_that_runs_this_process_is_frozen() -> None:
    frozen_folders = runtime_folders()
    for module in (os, pytest, frozen_paths):
        place = os.path.realpath(str(module.__file__))
        assert any(place.startswith(f"{folder}/") for folder in frozen_folders)
        assert any(place.startswith(f"{folder}/") for folder in code_folders())
    assert "/usr" not in frozen_folders


ALIAS = """
import os, subprocess, sys
from interlock.sandbox.workspace import frozen_paths as frozen
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
root = sys.argv[1]
for source, target in (("env", "whole"), ("env/lib/site-packages/package", "part")):
    os.mkdir(f"{root}/{target}")
    if subprocess.run(["mount", "--bind", f"{root}/{source}", f"{root}/{target}"]).returncode:
        sys.exit(77)
frozen.runtime_folders = lambda: (f"{root}/env",)
frozen.code_folders = lambda: (f"{root}/env/lib/site-packages",)
workspace = Workspace(root, frozen=frozen.FrozenPaths(root))
for path in ("whole/new", "whole/lib/new", "part/new", "part/module.py", "part/a/b"):
    try:
        workspace.replace_file(path, b"new", None)
        sys.exit(f"{path} was written")
    except PathRefusedError as refused:
        assert refused.kind == "guarded", refused
workspace.replace_file("elsewhere/new", b"new", None)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts are for root on Linux")
def test_folder_mounted_a_second_time_is_not_written(root: Path) -> None:
    words: list[Any] = ["unshare", "--mount", sys.executable, "-c", ALIAS, str(root)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    if ended.returncode in (1, 77) and "denied" in ended.stderr + ended.stdout:
        pytest.skip("this host allows no mounts")

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user")
def test_as_an_ordinary_user_too() -> None:
    pytest_as_ordinary_user(__file__)
