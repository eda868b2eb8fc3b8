"""Every adapter passes the suite with its real framework and that framework's own fake model."""

import pytest

from tests.adapters.environment import FIRST, SELECTED, frameworks, run


@pytest.mark.requirement("P02", "P03", "P04", "P05", "P06", "P07")
@pytest.mark.parametrize("name", [name for name in frameworks() if name in FIRST])
@pytest.mark.timeout(600)
def test_the_adapter_keeps_all_promises(name: str) -> None:
    ended = run(name, "-k", SELECTED[name])

    assert ended.returncode == 0, ended.stdout
