"""Folders and files that become links while tools work, for long."""

import sys
from pathlib import Path

import pytest

from interlock.sandbox.beneath import Reach
from tests.sandbox.race import race
from tests.sandbox.ways import both_ways

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="nothing else swaps two names at once"),
]


@both_ways
def test_nothing_leaks_in_twenty_seconds_of_swapping(reach: Reach, tmp_path: Path) -> None:
    found = race(tmp_path, reach, seconds=20)
    assert found.wrong == []
    assert found.flips > 10_000
    assert found.takes > 100
