"""Many scripts, read and run by real bash: not one may run anything that was not read."""

from pathlib import Path

import pytest

from tests.policy.bash_oracle import mismatches, scripts

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", range(20))
def test_bash_runs_what_was_read(seed: int, tmp_path: Path) -> None:
    count, wrong = mismatches(scripts(seed, count=5_000), tmp_path)
    assert wrong == []
    assert count > 1_000
