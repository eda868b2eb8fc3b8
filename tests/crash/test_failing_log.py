"""A log that fails at any append of the scripted run, and a disk that is full: the run stops, loses nothing and can
be reopened."""

from itertools import count
from pathlib import Path

import pytest

from .faults import FAULTS
from .lives import Lives
from .oracle import assert_sound, record_of, recover
from .scripted import FINISHED, LOG_FAILED

#: Which calls share a commit depends on timing, so runs differ; none has less appends than this.
MIN_APPENDS = 8


@pytest.mark.requirement("P15", "D15")
@pytest.mark.parametrize("fault", FAULTS)
def test_when_any_append_fails_nothing_more_starts_and_the_reopened_run_loses_nothing(
    lives: Lives, tmp_path: Path, fault: str
) -> None:
    failed = 0
    while (code := lives.live(folder := tmp_path / f"{failed}", "resubmit", fault, failed)) != FINISHED:
        assert code == LOG_FAILED, "execute raises LogError, and so does everything after it"
        death = record_of(folder)
        assert_sound(death)
        recover(lives, folder, "resume" if failed % 2 else "resubmit", [death])
        failed += 1
    assert failed >= MIN_APPENDS


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
