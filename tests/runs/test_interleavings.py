"""People and processes around one question, in random orders. `make soak` plays many more."""

import pytest

from .interleaving import play


@pytest.mark.requirement("P17")
@pytest.mark.parametrize("seed", range(40))
def test_every_order_is_told_truly(seed: int) -> None:
    play(seed)
