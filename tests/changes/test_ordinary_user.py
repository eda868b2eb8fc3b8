"""All tests of this folder, once more, in one process of an ordinary user."""

import os
from pathlib import Path

import pytest

from tests.sandbox.ordinary_user import pytest_as_ordinary_user


@pytest.mark.skipif(os.geteuid() != 0, reason="this is one")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    """A third of the random ones: `make soak` has more of them."""
    left_out = ("ordinary", "many", "deep", "thousands", "[2", "[3", "[4", "[5")
    pytest_as_ordinary_user(str(Path(__file__).parent), "-k", " and ".join(f"not {name}" for name in left_out))
