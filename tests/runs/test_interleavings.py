"""People and processes around one question, in random orders. `make soak` plays many more."""

import pytest

from tests.each import each

from .interleaving import play


@pytest.mark.requirement("P17")
@each("seed", range(40))
def test_every_order_is_told_truly(seed: int) -> None:
    play(seed)
