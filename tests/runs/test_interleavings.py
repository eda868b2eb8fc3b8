"""People and processes around one question, in random orders. `make soak` plays many more."""

import pytest

from tests.each import each

from .interleaving import play


@pytest.mark.requirement("P17")
@each("seed", range(40))
def test_every_order_is_told_truly(seed: int) -> None:
    play(seed)


@each("seed", range(60))
def test_every_order_around_a_queue_is_told_truly(seed: int) -> None:
    """Leases begin and end with appends, which are written later."""
    play(seed, queued=True)
