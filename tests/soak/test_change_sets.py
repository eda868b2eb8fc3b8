"""Random change sets, committed and undone to the byte, and killed at every step."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from interlock.changes.commit import Committed
from tests.changes.scenes import KilledJournal, Scene, check_all_kills, fill_at_random, skip_flushes
from tests.changes.trees import snapshot
from tests.sandbox.ordinary_user import ROOT, pytest_as_ordinary_user

from .budget import Budget

pytestmark = pytest.mark.soak
_COUNT, _PARTS = 1_000, 20


@pytest.mark.parametrize("part", range(_PARTS))
def test_thousand_change_sets_survive_all_kills(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_flushes(monkeypatch)
    for seed in range(part, _COUNT, _PARTS):
        scene = Scene(tmp_path / str(seed), KilledJournal)
        fill_at_random(scene, Random(seed))
        before, change_set = snapshot(scene.folder), scene.plan()
        check_all_kills(scene, undo=False)
        assert isinstance(scene.store.commit(change_set.invert(), scene.workspace), Committed)
        assert snapshot(scene.folder) == before, seed
        check_all_kills(scene, undo=True)
        scene.close()


@pytest.mark.parametrize("kind", ["commit", "undo"])
def test_sigkill_before_every_system_call(kind: str, tmp_path: Path, budget: Budget) -> None:
    for seed in budget.rounds():
        words = (sys.executable, "-m", "tests.changes.killed_commits", str(tmp_path / str(seed)), str(seed), kind, "1")
        ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{seed}: {ended.stderr[-3000:]}"


@pytest.mark.skipif(os.geteuid() != 0, reason="this is one")
@pytest.mark.parametrize("part", range(_PARTS))
def test_all_of_this_holds_for_an_ordinary_user(part: int) -> None:
    pytest_as_ordinary_user(__file__, "-m", "soak", "-k", f"thousand and [{part}]")
