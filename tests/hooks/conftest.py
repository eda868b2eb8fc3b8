"""A folder whose path is short enough for the address of a socket."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="il-"))
    yield folder
    shutil.rmtree(folder)
