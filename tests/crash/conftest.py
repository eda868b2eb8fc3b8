from collections.abc import Iterator

import pytest

from .lives import Lives


@pytest.fixture(scope="session")
def lives() -> Iterator[Lives]:
    lives = Lives()
    yield lives
    lives.close()
