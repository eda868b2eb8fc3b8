"""A log that fails at any append of the scripted run, and a disk that is full: the run stops, loses nothing and can
be reopened."""

from itertools import count
from pathlib import Path

import pytest

from .faults import FAULTS
from .lives import Lives, counts_of
from .oracle import Record, assert_recovered, assert_sound, assert_told, record_of
from .scripted import FINISHED, LOG_FAILED


def recover(lives: Lives, folder: Path, mode: str, deaths: list[Record]) -> None:
    assert lives.live(folder, mode) == FINISHED
    after = record_of(folder)
    assert_recovered(deaths, after)
    assert_told(folder, after)


@pytest.mark.requirement("P15", "D15")
@pytest.mark.parametrize("fault", FAULTS)
def test_when_any_append_fails_nothing_more_starts_and_the_reopened_run_loses_nothing(
    lives: Lives, tmp_path: Path, fault: str
) -> None:
    for number in count():
        folder = tmp_path / f"{number}"
        code = lives.live(folder, "resubmit", fault, number)
        if code == FINISHED:
            break
        assert code == LOG_FAILED, "execute raises LogError, and so does everything after it"
        death = record_of(folder)
        assert_sound(death)
        recover(lives, folder, "resume" if number % 2 else "resubmit", [death])
    assert number >= counts_of(folder)["append"] - 2


@pytest.mark.requirement("P15")
def test_on_a_disk_that_is_full_at_any_size_the_run_stops_and_goes_on_when_there_is_space(
    lives: Lives, tmp_path: Path
) -> None:
    stopped: list[int] = []
    for size_bytes in count(12 * 4096, 6 * 4096):
        folder = tmp_path / f"{size_bytes}"
        code = lives.live(folder, file_limit_bytes=size_bytes)
        if code == FINISHED:
            break
        assert code == LOG_FAILED
        death = record_of(folder)
        assert_sound(death)
        recover(lives, folder, "resubmit", [death])
        stopped.append(len(death.entries))
    assert len(set(stopped)) >= 3, "the disk was full at several places of the run"
    assert stopped == sorted(stopped)
