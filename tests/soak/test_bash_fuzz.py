"""Many scripts, read and run by real bash: not one may run anything that was not read."""

import shutil
from pathlib import Path

import pytest

from tests.policy.bash_oracle import mismatches, scripts

from .budget import Budget

pytestmark = pytest.mark.soak


def test_bash_runs_what_was_read(tmp_path: Path, budget: Budget) -> None:
    for seed in budget.rounds():
        count, wrong = mismatches(scripts(seed, count=250), tmp_path / str(seed))
        assert wrong == []
        assert count > 50
        shutil.rmtree(tmp_path / str(seed))
