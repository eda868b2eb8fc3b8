"""The workspace: what is read, listed and written through it, and what stays as it was."""

import gc
import os
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError, SandboxDeniedError
from interlock.sandbox.host.beneath import PathOpener
from interlock.sandbox.workspace.open_files import FolderContents, FolderEntry, LocatedPath
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.sandbox.ways import both_ways

CANARY = "outside, and not to be read"

pytestmark = pytest.mark.requirement("R229")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.txt").write_text(CANARY)
    root = tmp_path / "ws"
    (root / "a/b").mkdir(parents=True)
    (root / "a/f.txt").write_text("inside")
    (root / "link").symlink_to("a")
    (root / "out").symlink_to(tmp_path / "out")
    return root


@pytest.fixture
def workspace(root: Path) -> Iterator[Workspace]:
    with Workspace(root) as workspace:
        yield workspace


def refusal(act: Callable[..., object], *operands: object) -> tuple[str, str]:
    with pytest.raises(PathRefusedError) as caught:
        act(*operands)
    return caught.value.kind, str(caught.value)


def tell(act: Callable[..., LocatedPath | FolderContents], path: str, **options: bool) -> str:
    try:
        return repr(act(path, **options))
    except PathRefusedError as refused:
        return refused.kind


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@both_ways
def test_a_file_is_opened_with_its_real_place_and_status(reach: PathOpener, root: Path) -> None:
    with Workspace(root, opener=reach) as workspace, workspace.open_file("link/b/../f.txt", None) as file:
        assert (os.read(file.fd, 100), file.relative) == (b"inside", "a/f.txt")
        assert os.path.samestat(file.stat, (root / "a/f.txt").stat())
        assert file.stat.st_size == len(b"inside")


@both_ways
@pytest.mark.parametrize(
    ("path", "place"),
    [
        (".", LocatedPath(".", "folder")),
        ("link", LocatedPath("a", "folder")),
        ("link/f.txt", LocatedPath("a/f.txt", "file")),
        ("link/x/y/z.txt", LocatedPath("a/x/y/z.txt", "missing")),
        ("a/pipe", LocatedPath("a/pipe", "other")),
    ],
)
def test_a_path_has_a_place_also_before_the_file_exists(
    reach: PathOpener, path: str, place: LocatedPath, root: Path
) -> None:
    os.mkfifo(root / "a/pipe")
    with Workspace(root, opener=reach) as workspace:
        assert workspace.locate(path) == place
    assert place.exists is (place.kind != "missing")


def test_absolute_paths_begin_with_the_root_as_it_was_named_or_as_it_is(root: Path) -> None:
    root.with_name("name").symlink_to(root)
    with Workspace(root.with_name("name")) as workspace:
        assert workspace.root == str(root)
        assert (
            workspace.locate(f"{root}/a")
            == workspace.locate(f"{root.with_name('name')}/a")
            == LocatedPath("a", "folder")
        )


def test_a_refusal_says_what_is_the_matter_and_what_to_do(workspace: Workspace) -> None:
    assert refusal(workspace.open_file, "out/secret.txt", None) == (
        "outside",
        "'out/secret.txt' leads outside the workspace. Use a path inside of it, from its root on.",
    )
    assert refusal(workspace.open_file, "a/f.txt/x", None) == (
        "not_found",
        "'a/f.txt/x' does not exist (a part of it is a file and not a folder). Look for the right name first.",
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "malformed"),
        ("x\0", "malformed"),
        ("~/x", "malformed"),
        ("\udcff", "malformed"),
        ("x" * 5_000, "malformed"),
        ("/etc/passwd", "outside"),
        ("..", "outside"),
        (".env", "secret"),
        ("none", "not_found"),
        ("a", "not_a_file"),
        ("a/loop", "link"),
        ("a/pipe", "not_a_file"),
    ],
)
def test_refusals_are_told_apart(path: str, kind: str, root: Path, workspace: Workspace) -> None:
    (root / "a/loop").symlink_to("loop")
    os.mkfifo(root / "a/pipe")
    told, words = refusal(workspace.open_file, path, None)
    assert told == kind
    assert len(words) < 600
    assert str(root) not in words
    assert words.isprintable()


def test_a_refusal_is_one_of_the_sandbox_and_can_be_copied_to_another_process() -> None:
    refused = copy(PathRefusedError("no", "outside"))
    assert isinstance(refused, SandboxDeniedError)
    assert (str(refused), refused.kind, refused.nothing_done) == ("no", "outside", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_refused(root: Path, workspace: Workspace) -> None:
    (root / "a/f.txt").chmod(0)
    assert refusal(workspace.open_file, "a/f.txt", None)[0] == "unreadable"


def test_a_file_that_is_gone_meanwhile_is_still_what_was_opened(root: Path, workspace: Workspace) -> None:
    with workspace.open_file("a/f.txt", None) as file:
        (root / "a/f.txt").unlink()
        assert os.read(file.fd, 100) == b"inside"
        assert file.relative == "a/f.txt"


def test_a_rule_may_hide_more_by_the_written_and_by_the_real_path(root: Path) -> None:
    asked: list[tuple[str, bool]] = []

    def hides(relative: str, writing: bool) -> bool:
        asked.append((relative, writing))
        return relative == "a/f.txt"

    with Workspace(root, extra_hidden=hides) as workspace:
        assert refusal(workspace.open_file, "link/f.txt", None)[0] == "hidden"
        assert refusal(workspace.replace_file, "link/f.txt", b"", None)[0] == "hidden"
        assert workspace.find_refusal("a/f.txt") == "hidden"
    assert asked[:2] == [("link/f.txt", False), ("a/f.txt", False)]
    assert ("a/f.txt", True) in asked


@both_ways
def test_a_folder_is_listed_in_order_and_links_are_not_followed(reach: PathOpener, root: Path) -> None:
    with Workspace(root, opener=reach) as workspace:
        listing = workspace.list_entries("link/..")
        assert [(entry.name, entry.kind) for entry in listing.entries] == [
            ("a", "folder"),
            ("link", "link"),
            ("out", "link"),
        ]
        assert workspace.list_entries("link", limit=5).entries[-1] == FolderEntry("f.txt", "file", 6)


def test_a_long_listing_is_cut_and_says_so(root: Path, workspace: Workspace) -> None:
    for number in range(20):
        (root / "a/b" / f"{number:02}").touch()
    assert workspace.list_entries("a/b", limit=2) == FolderContents(
        "a/b", (FolderEntry("00", "file", 0), FolderEntry("01", "file", 0)), 20, True
    )


def test_a_file_is_no_folder(workspace: Workspace) -> None:
    assert refusal(workspace.open_folder, "a/f.txt", None)[0] == "not_a_folder"
    assert refusal(workspace.open_folder, "a/none", None)[0] == "not_found"


def test_the_workspace_stays_the_folder_that_it_was(root: Path, workspace: Workspace) -> None:
    root.rename(root.with_name("moved"))
    root.symlink_to("out")
    with workspace.open_file("a/f.txt", None) as file:
        assert file.relative == "a/f.txt"
    assert refusal(workspace.open_file, "secret.txt", None)[0] == "not_found"


@pytest.mark.parametrize("name", ["none", "a/f.txt"])
def test_a_workspace_has_to_be_a_folder(name: str, root: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Workspace(root / name)


def test_nothing_stays_open_also_when_nobody_closes(root: Path) -> None:
    before = os.listdir("/dev/fd")
    workspace = Workspace(root)
    for path in ("a/f.txt", "none", "a", ".env", ".."):
        try:
            workspace.open_file(path, None)
            workspace.open_folder(path, None)
            workspace.locate(path)
        except PathRefusedError:
            pass
    workspace.close()
    workspace.close()
    Workspace(root).locate("a")
    gc.collect()
    assert os.listdir("/dev/fd") == before
    assert refusal(workspace.open_file, "a/f.txt", None)[0] == "unreadable"


PIECES = st.sampled_from(
    ["..", ".", "", "a", "b", "f.txt", "link", "out", "secret.txt", "~", "x", ".git", "{OUT}", "{WS}", "\0"]
)
PATHS = st.text(max_size=40) | st.lists(PIECES | st.text(max_size=4), max_size=8).map("/".join)


@both_ways
@settings(database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS)
def test_whatever_the_path_nothing_outside_is_touched_and_only_refusals_are_raised(
    reach: PathOpener, path: str, root: Path
) -> None:
    path = path.replace("{WS}", str(root)).replace("{OUT}", str(root.with_name("out")))
    around = names(root.parent), names(root.parent / "out"), (root / "a/f.txt").exists()
    with Workspace(root, opener=reach) as workspace:
        for told in (tell(workspace.locate, path), tell(workspace.list_entries, path)):
            assert "secret.txt" not in told or "secret.txt" in path
        tell(workspace.locate, path, writing=True)
        try:
            with workspace.open_file(path, None) as file:
                assert os.read(file.fd, 100) != CANARY.encode()
        except PathRefusedError:
            pass
    assert (names(root.parent), names(root.parent / "out"), (root / "a/f.txt").exists()) == around


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user already")
def test_the_same_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
