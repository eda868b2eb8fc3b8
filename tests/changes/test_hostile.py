"""Commits against hostile change sets, full disks, missing rights and files that change at the wrong moment."""

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, ClassVar

import pytest

from interlock.changes import file_access
from interlock.changes.change_set import ABSENT, Change, ChangeSet, FileState, MalformedChangeSetError
from interlock.changes.commit import CommitFailed, Committed, Drifted, Journal
from interlock.changes.contents import MissingContentError
from interlock.changes.store import ChangeStore

from .scenes import KilledJournal, Scene, check_all_kills, fill, fill_at_random, skip_flushes
from .trees import add_content, copy, snapshot


class LateJournal(Journal):
    """Something happens between the comparison and the first step."""

    happens: ClassVar[list[Callable[[], object]]] = []

    def ready(self, record: Any) -> None:
        super().ready(record)
        for work in self.happens:
            work()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, LateJournal)
    fill(scene)
    yield scene
    LateJournal.happens.clear()
    scene.close()


FILE = FileState(kind="file", mode=0o644)
MALFORMED = {
    "above": [("../x", ABSENT, FILE)],
    "absolute": [("/etc/x", ABSENT, FILE)],
    "itself": [(".", ABSENT, FILE)],
    "empty": [("", ABSENT, FILE)],
    "empty name": [("a//b", ABSENT, FILE)],
    "dots inside": [("a/../../x", ABSENT, FILE)],
    "NUL": [("a\0b", ABSENT, FILE)],
    "twice": [("a", ABSENT, FILE), ("a", ABSENT, FILE)],
    "unsorted": [("b", ABSENT, FILE), ("a", ABSENT, FILE)],
    "in a file": [("a", ABSENT, FILE), ("a/b", ABSENT, FILE)],
    "in nothing": [("a", FileState(kind="folder", mode=0o755), ABSENT), ("a/b", ABSENT, FILE)],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_change_sets_are_refused(scene: Scene, name: str) -> None:
    before = snapshot(scene.folder.parent)
    digest = add_content(scene.store, b"x")
    states = {state: FileState(kind="file", mode=0o644, size=1, digest=digest) for state in ("file",)}
    changes = tuple(
        Change(path=path, before=old, after=states.get(new.kind, new)) for path, old, new in MALFORMED[name]
    )
    change_set = ChangeSet(changes=changes)

    assert isinstance(scene.store.commit(change_set, scene.workspace), CommitFailed)
    with pytest.raises(MalformedChangeSetError):
        ChangeSet.from_json(change_set.to_json())
    kept = {path: entry for path, entry in snapshot(scene.folder.parent).items() if not path.startswith("store")}
    assert kept == {path: entry for path, entry in before.items() if not path.startswith("store")}


def test_damaged_manifests_are_refused(scene: Scene) -> None:
    digest = scene.store.keep(scene.plan())
    manifest = Path(scene.store.folder, "manifests", digest)
    assert scene.store.load(digest).digest() == digest
    text = manifest.read_bytes()
    for damaged in (b"", b"[]", text[:-20], text.replace(b"edited", b"other"), b'{"changes":' + b"[" * 100_000):
        manifest.write_bytes(damaged)
        with pytest.raises(MissingContentError):
            scene.store.load(digest)
    for name in ("", "../objects/x", "0" * 64):
        with pytest.raises(MissingContentError):
            scene.store.load(name)


def test_names_without_utf8_are_kept(scene: Scene) -> None:
    name = os.fsdecode(b"\xff\xfe")
    (scene.changed / name).write_text("x")
    change_set = scene.plan()

    assert ChangeSet.from_json(change_set.to_json()) == change_set
    assert name in {one.path for one in scene.store.load(scene.store.keep(change_set)).changes}


@pytest.mark.parametrize(("room", "path"), [(500_000, "large"), (10, "")], ids=["for the journal", "for nothing"])
def test_a_full_disk_changes_nothing(scene: Scene, room: int, path: str) -> None:
    """A limit on the size of files fails in the same places as a full disk."""
    (scene.changed / "large").write_bytes(bytes(range(256)) * 4_000)
    before, change_set = snapshot(scene.folder), scene.plan()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
    try:
        failed = scene.store.commit(change_set, scene.workspace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    assert isinstance(failed, CommitFailed)
    assert (failed.path, failed.needs_recovery) == (path, False)
    assert snapshot(scene.folder) == before
    assert scene.list_left() == []
    assert isinstance(scene.store.commit(change_set, scene.workspace), Committed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_missing_rights_change_nothing(scene: Scene) -> None:
    for folder in (scene.folder, scene.changed):
        (folder / "closed").mkdir()
    (scene.changed / "closed/file").write_text("x")
    for folder in (scene.folder, scene.changed):
        (folder / "closed").chmod(0o555)
    before = snapshot(scene.folder)

    failed = scene.store.commit(scene.plan(), scene.workspace)

    assert isinstance(failed, CommitFailed)
    assert failed.path == "closed/file"
    assert snapshot(scene.folder) == before
    assert scene.list_left() == []


LATE: dict[str, Callable[[Path], object]] = {
    "edited": lambda folder: (folder / "edited").write_text("by hand"),
    "gone": lambda folder: (folder / "gone").write_text("by hand"),
    "made": lambda folder: (folder / "made").write_text("by hand"),
    "turns": lambda folder: (folder / "turns").unlink(),
}


@pytest.mark.parametrize("path", LATE)
def test_a_change_at_the_last_moment_survives(scene: Scene, path: str) -> None:
    change_set, before = scene.plan(), snapshot(scene.folder)
    LateJournal.happens.append(lambda: LATE[path](scene.folder))

    result = scene.store.commit(change_set, scene.workspace)

    assert isinstance(result, Drifted)
    assert [one.path for one in result.files] == [path]
    found = snapshot(scene.folder)
    assert {key: entry for key, entry in found.items() if key != path} == {
        key: entry for key, entry in before.items() if key != path
    }
    assert found.get(path) != before.get(path)
    assert scene.list_left() == []


def test_files_that_appear_in_a_removed_folder_are_kept(scene: Scene) -> None:
    LateJournal.happens.append(lambda: (scene.folder / "dir/mine").write_text("by hand"))

    result = scene.store.commit(scene.plan(), scene.workspace)

    assert isinstance(result, Committed)
    [left] = result.left
    assert (scene.folder / left.path).read_text() == "by hand"


def test_hard_links_outside_keep_their_content(scene: Scene, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    os.link(scene.folder / "edited", outside)
    mode = outside.stat().st_mode

    assert isinstance(scene.store.commit(scene.plan(), scene.workspace), Committed)
    assert (outside.read_text(), outside.stat().st_mode) == ("old", mode)


def test_names_that_flip_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the workspace and a link to the outside take turns while commits and undos run."""
    skip_flushes(monkeypatch)
    scene = Scene(tmp_path)
    outside, link = tmp_path / "outside", scene.folder / "link"
    outside.mkdir()
    (scene.folder / "dir").mkdir()
    for number in range(5):
        (scene.folder / f"dir/{number}").write_text("old")
        (outside / f"{number}").write_text("old")
    copy(scene.folder, scene.changed)
    for number in range(5):
        (scene.changed / f"dir/{number}").write_text("new")
    change_set, before = scene.plan(), snapshot(outside)
    link.symlink_to(outside)
    with scene.workspace.open_root() as root:
        stop = Event()

        def flip() -> None:
            while not stop.is_set():
                file_access.exchange(root.fd, "dir", "link")

        flipping = Thread(target=flip)
        flipping.start()
        try:
            for number in range(60):
                scene.store.commit(change_set if number % 2 else change_set.invert(), scene.workspace)
                scene.store.recover()
        finally:
            stop.set()
            flipping.join()
    assert snapshot(outside) == before


@pytest.mark.parametrize("seed", range(3))
def test_without_exchange_the_same_holds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems cannot exchange two names, so it takes two steps."""
    skip_flushes(monkeypatch)
    monkeypatch.setattr(file_access, "_renameat2", lambda: None)
    scene = Scene(tmp_path, KilledJournal)
    fill_at_random(scene, Random(seed), 15)
    check_all_kills(scene, undo=bool(seed % 2))


def test_thousands_of_files_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_flushes(monkeypatch)
    scene = Scene(tmp_path)
    digest = add_content(scene.store, b"x")
    state = FileState(kind="file", mode=0o644, size=1, digest=digest)
    folder = FileState(kind="folder", mode=0o755)
    paths = sorted(f"many/{number // 100}/{number}" for number in range(2_000))
    states = {"many": folder, **{f"many/{number}": folder for number in range(100)}, **dict.fromkeys(paths, state)}
    changes = (Change(path=path, before=ABSENT, after=states[path]) for path in sorted(states))
    change_set = ChangeSet(changes=tuple(changes))

    assert isinstance(scene.store.commit(change_set, scene.workspace), Committed)
    assert sum(len(files) for _, _, files in os.walk(scene.folder)) == 2_000
    assert isinstance(scene.store.commit(change_set.invert(), scene.workspace), Committed)
    assert list(scene.folder.iterdir()) == []


def test_unused_contents_are_collected(scene: Scene) -> None:
    change_set = scene.plan()
    kept, dropped = scene.store.keep(change_set), scene.store.keep(ChangeSet(changes=change_set.changes[:1]))
    unused = add_content(scene.store, b"nothing refers to this")
    later = ChangeStore(scene.store.folder, now=lambda: 10e9)

    assert scene.store.collect().change_sets == 0
    assert scene.store.has_content(unused), "it may belong to a change set that is not kept yet"
    collected = later.collect(keep=[kept])

    assert collected.change_sets == 1
    assert not scene.store.has_content(unused)
    assert scene.store.load(kept) == change_set
    with pytest.raises(MissingContentError):
        scene.store.load(dropped)
    assert isinstance(scene.store.commit(change_set, scene.workspace), Committed)


def test_a_store_is_collected_once_a_day(scene: Scene) -> None:
    digest, day = scene.store.keep(scene.plan()), 86_400.0
    manifest, marker = (Path(scene.store.folder, name) for name in (f"manifests/{digest}", "collected"))
    os.utime(manifest, (0, 0))
    found: list[bool] = []
    for at in (20 * day, 50 * day, 50.5 * day, 52 * day):
        ChangeStore(scene.store.folder, now=lambda at=at: at).collect_daily()
        os.utime(marker, (at, at))
        found.append(manifest.exists())
        manifest.touch()
        os.utime(manifest, (0, 0))

    assert found == [True, False, True, False]


def test_a_store_that_was_never_used_is_not_created(tmp_path: Path) -> None:
    ChangeStore(tmp_path / "store", now=lambda: 10e9).collect_daily()

    assert not (tmp_path / "store").exists()


def test_the_oldest_change_sets_go_first(scene: Scene) -> None:
    digests: list[str] = []
    for number, change in enumerate(one for one in scene.plan().changes if one.after.kind == "file"):
        digests.append(scene.store.keep(ChangeSet(changes=(change,))))
        os.utime(Path(scene.store.folder, "manifests", digests[-1]), (number, number))
    sizes = [sum(len(scene.store.read_content(one)) for one in scene.store.load(each).contents) for each in digests]

    scene.store.collect(max_age_seconds=10e12, max_bytes=sum(sizes) - 1)

    assert sorted(os.listdir(Path(scene.store.folder, "manifests"))) == sorted(digests[1:])
