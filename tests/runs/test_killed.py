"""`kill -9` at every event and around every commit and effect of a whole run with approvals and an agent inside another
one. A fresh process goes on: no effect twice, no answer lost, no start without a yes, the same final answer."""

from collections.abc import Iterator
from pathlib import Path
from random import sample

import pytest

from tests.soak.budget import Budget

from .lives import KILLED, Left, Lives, assert_sound, assert_went_on, counts_of, left_in
from .story import CODES, FINISHED, NO_EFFECT

#: Which facts share a commit depends on timing, so a run on a busy machine may pass more points than another.
SLACK = 4


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    lives = Lives()
    yield lives
    lives.close()


def kill(lives: Lives, folder: Path, kind: str, number: int) -> Left | None:
    """What a child left that was killed there; None when it ended before it got there."""
    code = lives.live(folder, kind, number)
    assert code in (KILLED, FINISHED)
    left = left_in(folder)
    assert_sound(left)
    return left if code == KILLED else None


def kill_at_each(lives: Lives, tmp_path: Path, kind: str, every: int = 1) -> None:
    points = points_of(lives, tmp_path, kind)
    number = killed = 0
    while kill_and_recover(lives, tmp_path / f"{number}", kind, number):
        number += every
        killed += 1
    assert killed >= points // 2 // every


def points_of(lives: Lives, tmp_path: Path, kind: str) -> int:
    """Return at how many points a whole run can be killed."""
    assert lives.live(tmp_path / "whole") == FINISHED
    return counts_of(tmp_path / "whole")[kind]


def kill_and_recover(lives: Lives, folder: Path, kind: str, number: int) -> bool:
    """Return False when the run ended before it got to that point."""
    death = kill(lives, folder, kind, number)
    if death is not None:
        assert lives.live(folder) == FINISHED
        assert_went_on(death, folder)
    return death is not None


def test_without_a_death_everything_happens_once(lives: Lives, tmp_path: Path) -> None:
    assert lives.live(tmp_path / "run") == FINISHED

    assert_went_on(None, tmp_path / "run")
    effects = left_in(tmp_path / "run").effects
    assert effects == {id: 1 for run in CODES.values() for id in run if id not in NO_EFFECT}


@pytest.mark.requirement("P06", "P07", "D15", "R081", "R086")
@pytest.mark.parametrize("kind", ["append", "durable", "effect", "done"])
def test_a_run_that_is_killed_there_goes_on_without_repeating_or_losing_anything(
    lives: Lives, tmp_path: Path, kind: str
) -> None:
    # Most appends are between two effects: every third one, and every effect.
    kill_at_each(lives, tmp_path, kind, every=1 if kind in ("effect", "done") else 3)


@pytest.mark.requirement("P06", "P07", "D15")
@pytest.mark.parametrize("kind", ["event", "commit", "keep", "kept"])
def test_a_run_that_is_killed_anywhere_goes_on_as_well(lives: Lives, tmp_path: Path, kind: str) -> None:
    kill_at_each(lives, tmp_path, kind, every=7)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["append", "durable", "event", "commit", "keep", "kept"])
def test_every_single_event_and_commit_may_be_the_last_one(
    lives: Lives, tmp_path: Path, kind: str, budget: Budget
) -> None:
    """In another order each time, as far as the time allows."""
    points = max(1, points_of(lives, tmp_path, kind) - SLACK)
    for _, number in zip(budget.rounds(), sample(range(points), points), strict=False):
        assert kill_and_recover(lives, tmp_path / f"{number}", kind, number), number


@pytest.mark.parametrize("first", ["durable", "done"])
def test_a_recovery_that_is_killed_too_is_recovered_from(lives: Lives, tmp_path: Path, first: str) -> None:
    for number, later in ((2, 1), (3, 4)):
        folder = tmp_path / f"{number}"
        assert kill(lives, folder, first, number) is not None
        kill(lives, folder, "durable", later)
        assert lives.live(folder) == FINISHED
        assert_sound(left_in(folder))
