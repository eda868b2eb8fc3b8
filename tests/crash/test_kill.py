"""`kill -9` at every append and around every effect of a scripted run: no effect twice, none without a durable start,
no outcome that is unknown and does not say so, and a log that verifies.

A child lives the script (`scripted.py`) and is killed at one point (`points.py`); what it left is looked at; another
child goes on with the same run; what is there then is held against the oracle (`oracle.py`).
"""

from itertools import product
from pathlib import Path

import pytest

from .lives import KILLED, Lives, counts_of
from .oracle import Record, assert_sound, record_of, recover
from .points import KINDS
from .scripted import CODES, FINISHED, READ_ONLY

#: Which calls share a commit depends on timing, so a run on a busy machine may pass more of these than another.
TIMED = {"append", "commit", "durable"}
MODES = ("resubmit", "resume")


def kill(lives: Lives, folder: Path, kind: str, number: int) -> Record | None:
    """What a child left that was killed there; None when it ended before it got there."""
    code = lives.live(folder, "resubmit", kind, number)
    assert code in (KILLED, FINISHED)
    left = record_of(folder)
    assert_sound(left)
    return left if code == KILLED else None


def test_without_a_death_the_script_does_everything_once(lives: Lives, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recover(lives, folder, "resubmit", [])

    counts = counts_of(folder)
    assert set(record_of(folder).effects) == {call_id for call_id in CODES if CODES[call_id] == "ok"} - READ_ONLY
    assert set(counts) == set(KINDS)
    assert counts["effect"] == counts["done"] == 11
    assert counts["append"] >= 8


@pytest.mark.requirement("P07", "D15", "R175")
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_at_any_point_goes_on_without_repeating_or_hiding_anything(
    lives: Lives, tmp_path: Path, kind: str
) -> None:
    assert lives.live(tmp_path / "whole") == FINISHED
    expected = counts_of(tmp_path / "whole")[kind]
    killed = 0
    while (death := kill(lives, folder := tmp_path / f"{killed}", kind, killed)) is not None:
        # The two ways to go on take turns: the points beside this one have the other.
        recover(lives, folder, MODES[killed % 2], [death])
        killed += 1
    assert killed >= (expected // 2 if kind in TIMED else expected)


@pytest.mark.requirement("P07", "D15")
@pytest.mark.parametrize(("first", "second"), [*product(["durable", "effect", "done"], ["append", "durable", "done"])])
def test_a_recovery_that_is_killed_too_is_recovered_from(lives: Lives, tmp_path: Path, first: str, second: str) -> None:
    for number, later, mode in ((1, 2, "resubmit"), (4, 0, "resume"), (7, 1, "resubmit")):
        folder = tmp_path / f"{number}"
        deaths = [kill(lives, folder, first, number), kill(lives, folder, second, later)]
        recover(lives, folder, mode, [death for death in deaths if death is not None])
