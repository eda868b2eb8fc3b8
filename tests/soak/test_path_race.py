"""Folders and files that become links while tools work, for long."""

import sys
from pathlib import Path

import pytest

from interlock.sandbox.beneath import Reach
from tests.sandbox.race import race
from tests.sandbox.ways import both_ways

from .budget import Budget

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="nothing else swaps two names at once"),
]


@both_ways
def test_nothing_leaks_while_names_are_swapped(reach: Reach, tmp_path: Path, budget: Budget) -> None:
    found = race(tmp_path, reach, seconds=budget.seconds)
    assert found.wrong == []
    assert found.flips > 10_000
    assert found.takes > 100
