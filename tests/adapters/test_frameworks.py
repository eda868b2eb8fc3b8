"""Adapters keep the promises of the suite with their real framework and that framework's own fake model."""

import pytest

from tests.adapters.environment import SELECTED, run


@pytest.mark.requirement("P04", "P05", "P07")
@pytest.mark.parametrize("name", SELECTED)
@pytest.mark.timeout(600)
def test_the_adapter_keeps_its_promises(name: str) -> None:
    ended = run(name, "-k", SELECTED[name])

    assert ended.returncode == 0, ended.stdout
