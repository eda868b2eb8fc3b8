"""Undoing calls: files are put back, and what others changed since stays and is said."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from interlock.changes.change_set import compare_states
from interlock.changes.commit import Committed
from interlock.changes.undo import CallChanges, UndoPlan, plan_undo

from .scenes import Scene, skip_flushes
from .trees import Entry, copy, edit, grow, remove, snapshot


class Run:
    """Calls in one workspace, each with what it changed."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder)
        self.folder = self.scene.folder
        self.history: list[CallChanges] = []

    def call(self, work: Callable[[Path], object]) -> str:
        copy(self.folder, self.scene.changed)
        work(self.scene.changed)
        change_set = self.scene.plan()
        remove(self.scene.changed)
        return self._commit(f"call{len(self.history)}", change_set)

    def _commit(self, call_id: str, change_set: object) -> str:
        done = self.scene.store.commit(change_set, self.scene.workspace)  # pyright: ignore[reportArgumentType]
        assert isinstance(done, Committed), done
        self.history.append(CallChanges(call_id, done.change_set))
        return call_id

    def plan(self, *selected: str) -> UndoPlan:
        chosen = selected or tuple(call.call_id for call in self.history)
        return plan_undo(self.history, chosen, self.scene.store, self.scene.workspace)

    def undo(self, *selected: str) -> UndoPlan:
        plan = self.plan(*selected)
        self._commit(f"undo{len(self.history)}", plan.change_set)
        return plan

    def says(self, plan: UndoPlan) -> dict[str, str]:
        return {one.path: f"{one.action} {one.changed_by}".strip() for one in plan.files}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    skip_flushes(monkeypatch)
    run = Run(tmp_path)
    (run.folder / "a").write_text("a0")
    (run.folder / "b").write_text("b0")
    (run.folder / "dir").mkdir()
    (run.folder / "dir/c").write_text("c0")
    return run


def write(path: str, text: str) -> Callable[[Path], object]:
    def work(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    return work


@pytest.mark.requirement("P28")
def test_undo_restores_all_calls(run: Run) -> None:
    before = snapshot(run.folder)
    run.call(write("a", "a1"))
    run.call(write("new/deep/file", "x"))
    run.call(lambda folder: remove(folder / "dir"))
    run.call(write("a", "a2"))

    plan = run.undo()

    assert snapshot(run.folder) == before
    assert plan.skipped == ()


def test_undo_can_be_undone(run: Run) -> None:
    run.call(write("a", "a1"))
    run.call(lambda folder: remove(folder / "dir"))
    changed = snapshot(run.folder)
    run.undo()

    run.undo(run.history[-1].call_id)

    assert snapshot(run.folder) == changed


def test_undo_back_to_one_call(run: Run) -> None:
    run.call(write("a", "a1"))
    then = snapshot(run.folder)
    later = [run.call(write("a", "a2")), run.call(write("b", "b2")), run.call(write("new", "x"))]

    run.undo(*later)

    assert snapshot(run.folder) == then


def test_undo_of_one_call_keeps_later_ones(run: Run) -> None:
    first = run.call(lambda folder: (write("a", "a1")(folder), write("b", "b1")(folder)))
    second = run.call(write("a", "a2"))

    plan = run.undo(first)

    assert run.says(plan) == {"a": f"skip {second}", "b": "restore"}
    assert [(run.folder / name).read_text() for name in "ab"] == ["a2", "b0"]


@pytest.mark.requirement("P28")
def test_changes_of_others_stay(run: Run) -> None:
    run.call(lambda folder: (write("a", "a1")(folder), remove(folder / "b"), write("dir/c", "c1")(folder)))
    (run.folder / "a").write_text("by hand")
    (run.folder / "b").write_text("by hand")

    plan = run.undo()

    assert run.says(plan) == {"a": "skip", "b": "skip", "dir/c": "restore"}
    assert all("another program" in one.reason for one in plan.skipped)
    assert [(run.folder / name).read_text() for name in ("a", "b", "dir/c")] == ["by hand", "by hand", "c0"]


def test_a_folder_with_files_of_others_stays(run: Run) -> None:
    run.call(lambda folder: (write("new/x", "x")(folder), write("new/deep/y", "y")(folder)))
    (run.folder / "new/deep/mine").write_text("by hand")

    plan = run.undo()

    assert run.says(plan) == {"new": "skip", "new/deep": "skip", "new/deep/y": "restore", "new/x": "restore"}
    assert "'mine'" in plan.skipped[1].reason
    assert sorted(path.name for path in run.folder.rglob("new/**/*")) == ["deep", "mine"]


def test_a_file_without_its_folder_stays_gone(run: Run) -> None:
    run.call(lambda folder: remove(folder / "dir"))
    (run.folder / "dir").write_text("a file by hand")

    plan = run.undo()

    assert run.says(plan) == {"dir": "skip", "dir/c": "skip"}
    assert (run.folder / "dir").read_text() == "a file by hand"


def test_a_change_between_calls_is_not_lost(run: Run) -> None:
    run.call(write("a", "a1"))
    (run.folder / "a").write_text("by hand")
    run.call(write("a", "a2"))

    plan = run.undo()

    [file] = plan.files
    assert "between the calls" in file.reason
    assert (run.folder / "a").read_text() == "by hand"


def test_missing_contents_are_said(run: Run) -> None:
    run.call(lambda folder: (write("a", "a1")(folder), write("b", "b1")(folder)))
    digest = run.history[0].change_set.changes[0].before.digest
    Path(run.scene.store.folder, "objects", digest).unlink()

    plan = run.undo()

    assert run.says(plan) == {"a": "skip", "b": "restore"}
    assert "not kept" in plan.skipped[0].reason


def test_planning_changes_nothing(run: Run) -> None:
    run.call(write("a", "a1"))
    before = snapshot(run.folder)

    assert run.plan() == run.plan()
    assert snapshot(run.folder) == before


def test_an_edit_of_known_files_is_undone(run: Run) -> None:
    """As file tools do: captured before and after."""
    store, before = run.scene.store, snapshot(run.folder)
    paths = ("a", "new/deep/file", "b")
    captured = store.capture(run.scene.workspace, paths)
    write("a", "a1")(run.folder)
    write("new/deep/file", "x")(run.folder)
    change_set = compare_states(captured, store.capture(run.scene.workspace, paths))
    assert [one.path for one in change_set.changes] == ["a", "new", "new/deep", "new/deep/file"]
    run.history.append(CallChanges("edit", change_set))

    run.undo()

    assert snapshot(run.folder) == before


def without_times(found: dict[str, Entry]) -> dict[str, tuple[object, ...]]:
    return {path: entry[:4] for path, entry in found.items()}


@pytest.mark.requirement("P28")
@pytest.mark.parametrize("seed", range(30))
def test_random_runs_are_undone(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo of the last calls, of all, and of that, without and with changes of others in between."""
    skip_flushes(monkeypatch)
    random, run = Random(seed), Run(tmp_path)
    grow(run.folder, random, 15)
    states = [without_times(snapshot(run.folder))]
    calls: list[str] = []
    for _ in range(random.randrange(1, 6)):
        calls.append(run.call(lambda folder: [edit(folder, random) for _ in range(random.randrange(1, 6))]))
        states.append(without_times(snapshot(run.folder)))
    start = random.randrange(len(calls))
    run.undo(*calls[start:])
    assert without_times(snapshot(run.folder)) == states[start]
    run.undo()
    assert without_times(snapshot(run.folder)) == states[0]
    run.undo(run.history[-1].call_id)
    assert without_times(snapshot(run.folder)) == states[start]

    for _ in range(5):
        edit(run.folder, random)
    mine, plan = snapshot(run.folder), run.undo()
    left = snapshot(run.folder)
    for one in plan.skipped:
        assert left.get(one.path, (None,))[:3] == mine.get(one.path, (None,))[:3], one
    touched = {one.path for one in plan.change_set.changes}
    assert {path: entry for path, entry in left.items() if path not in touched} == {
        path: entry for path, entry in mine.items() if path not in touched
    }
