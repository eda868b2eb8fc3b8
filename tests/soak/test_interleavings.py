"""Ten thousand random orders of approve, reject, cancel, expiry, takeover and kill."""

import pytest

from tests.runs.interleaving import play

pytestmark = pytest.mark.soak


def test_ten_thousand_orders_are_told_truly() -> None:
    for seed in range(10_000):
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"with the seed {seed}")
            raise
