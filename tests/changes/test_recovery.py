"""Commits that are killed: completed or rolled back, never half, and never over what others changed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import CommitFailed, Committed
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import ROOT

from .scenes import KilledJournal, Scene, check_all_kills, commit_killed, fill, fill_at_random, skip_flushes
from .trees import snapshot


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    skip_flushes(monkeypatch)
    scene = Scene(tmp_path, KilledJournal)
    yield scene
    KilledJournal.left = -1
    scene.close()


@pytest.mark.parametrize("undo", [False, True], ids=["commit", "undo"])
@pytest.mark.parametrize("seed", range(8))
def test_killed_at_every_step(seed: int, undo: bool, scene: Scene) -> None:
    fill_at_random(scene, Random(seed), 15)
    check_all_kills(scene, undo)


@pytest.mark.parametrize("mode", [0o300, 0o500, 0o000])
def test_killed_with_closed_folders(mode: int, scene: Scene) -> None:
    """Without rights for its owner, a folder has to be opened for the commit, and closed again."""
    for folder in (scene.folder, scene.changed):
        (folder / "outer/inner").mkdir(parents=True)
        (folder / "outer/file").write_text("old")
    (scene.changed / "outer/inner/new").write_text("new")
    (scene.changed / "outer/file").unlink()
    for name in ("outer/inner", "outer"):
        (scene.folder / name).chmod(mode)
    check_all_kills(scene, undo=False)


@pytest.mark.parametrize("kind", ["commit", "undo"])
def test_sigkill_before_a_system_call(kind: str, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "tests.changes.killed_commits", str(tmp_path), "-1", kind, "7")
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)

    assert ended.returncode == 0, ended.stderr[-3000:]
    assert int(ended.stdout) > 50


def interrupt(scene: Scene, until: Callable[[], bool]) -> None:
    """Be killed at the first step after which something is true."""
    fill(scene)
    change_set = scene.plan()
    steps = 0
    while True:
        assert commit_killed(scene, change_set, steps)
        if until():
            return
        scene.store.recover()
        steps += 1


def is_applied(scene: Scene) -> bool:
    return (scene.folder / "edited").read_text() == "new"


def test_next_commit_waits_for_recovery(scene: Scene) -> None:
    interrupt(scene, lambda: is_applied(scene))

    refused = scene.store.commit(ChangeSet(), scene.workspace)
    assert isinstance(refused, CommitFailed)
    assert refused.needs_recovery

    scene.store.recover()
    assert isinstance(scene.store.commit(ChangeSet(), scene.workspace), Committed)


EDITS: dict[str, Callable[[Path], object]] = {
    "edited": lambda path: path.write_text("by hand"),
    "edited by another name": lambda path: (
        path.with_name("x").write_text("by hand"),
        path.with_name("x").replace(path),
    ),
    "deleted": lambda path: path.unlink(),
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir(), (path / "inner").write_text("by hand")),
}


@pytest.mark.parametrize("how", EDITS)
def test_an_edit_of_the_new_file_survives(scene: Scene, how: str) -> None:
    """It was made on top of the change, so the change is completed."""
    interrupt(scene, lambda: is_applied(scene))
    EDITS[how](scene.folder / "edited")
    mine = {path: entry for path, entry in snapshot(scene.folder).items() if path.split("/")[0] == "edited"}

    [recovered] = scene.store.recover()

    assert recovered.outcome == "completed"
    assert {one.path for one in recovered.conflicts} >= {"edited"}
    expected = {path: entry for path, entry in snapshot(scene.changed).items() if path != "edited"}
    assert snapshot(scene.folder) == expected | mine
    assert scene.list_left() == []


@pytest.mark.parametrize("how", EDITS)
def test_an_edit_of_the_old_file_survives(scene: Scene, how: str) -> None:
    """It was made on top of what was before, so the change is rolled back, also where a new file was edited as well."""
    interrupt(scene, lambda: (scene.folder / "dir").is_symlink() and not is_applied(scene))
    EDITS[how](scene.folder / "edited")
    (scene.folder / "dir").unlink()
    (scene.folder / "dir").write_text("by hand as well")
    mine = {path: entry for path, entry in snapshot(scene.folder).items() if path.split("/")[0] in ("edited", "dir")}

    [recovered] = scene.store.recover()

    assert recovered.outcome == "rolled_back"
    assert "dir" in {one.path for one in recovered.conflicts}
    found = snapshot(scene.folder)
    assert {path: entry for path, entry in found.items() if path.split("/")[0] in ("edited", "dir")} == mine
    assert not (scene.folder / "made").exists()
    kept = [path.read_text() for path in scene.folder.rglob("inner") if path.parent.name != "edited"]
    assert kept in (["inner"], []), kept


def test_a_replaced_workspace_is_left_alone(scene: Scene) -> None:
    interrupt(scene, lambda: is_applied(scene))
    aside = scene.folder.with_name("moved")
    scene.folder.rename(aside)
    scene.folder.mkdir()

    [blocked] = scene.store.recover()
    assert (blocked.outcome, list(scene.folder.iterdir())) == ("blocked", [])

    scene.folder.rmdir()
    aside.rename(scene.folder)
    [recovered] = scene.store.recover()
    assert recovered.outcome == "rolled_back"


def test_a_torn_journal_changes_nothing(scene: Scene) -> None:
    fill(scene)
    before, change_set = snapshot(scene.folder), scene.plan()
    assert commit_killed(scene, change_set, 1)
    [name] = os.listdir(Path(scene.store.folder, "journals"))
    journal = Path(scene.store.folder, "journals", name)
    journal.write_bytes(journal.read_bytes()[:50])

    assert scene.store.recover() == ()
    assert snapshot(scene.folder) == before
    assert scene.list_left() == []


def test_a_damaged_journal_is_said_once(scene: Scene) -> None:
    fill(scene)
    assert commit_killed(scene, scene.plan(), 1)
    [name] = os.listdir(Path(scene.store.folder, "journals"))
    for content in (b"[]\n", b"{}\n", b"\0\0\0\n", b'{"change_set": 1}\n'):
        Path(scene.store.folder, "journals", name).write_bytes(content)
        [blocked] = scene.store.recover()
        assert (blocked.outcome, "damaged" in blocked.reason) == ("blocked", True)
        assert scene.store.recover() == ()


def test_another_process_recovers(scene: Scene) -> None:
    interrupt(scene, lambda: is_applied(scene))
    program = f"from interlock.changes.store import ChangeStore; print(ChangeStore({scene.store.folder!r}).recover())"
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)

    assert "rolled_back" in ended.stdout
    assert scene.store.recover() == ()
    assert not is_applied(scene)
