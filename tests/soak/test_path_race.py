"""Folders and files that become links while tools work, for long."""

import os
import sys
from pathlib import Path

import pytest

from interlock.sandbox.host.beneath import PathOpener
from tests.sandbox.judged_race import judged_race
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.sandbox.race import race
from tests.sandbox.ways import both_ways

from .budget import Budget

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="nothing else swaps two names at once"),
]


@both_ways
def test_nothing_leaks_while_names_are_swapped(reach: PathOpener, tmp_path: Path, budget: Budget) -> None:
    found = race(tmp_path, reach, seconds=budget.seconds)
    assert found.wrong == []
    assert found.flips > 500 * budget.seconds
    assert found.takes > 5 * budget.seconds


@pytest.mark.requirement("P19")
async def test_nothing_unjudged_is_opened_while_names_are_swapped(tmp_path: Path, budget: Budget) -> None:
    found = await judged_race(tmp_path, seconds=budget.seconds)

    assert found.wrong == []
    assert found.flips > 500 * budget.seconds
    assert {outcome for _, outcome in found.met} >= {"ok", "runtime_precondition_failed", "approval_unavailable"}


@pytest.mark.requirement("P19")
@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user")
def test_as_an_ordinary_user_too() -> None:
    pytest_as_ordinary_user(__file__, "-m", "soak", "-k", "unjudged")
