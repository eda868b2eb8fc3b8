"""A folder for each test, in which no supervisor is left, and processes that are killed at its end."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from .runs import RunProcess, task_folder

StartLife: TypeAlias = Callable[..., RunProcess]


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    with task_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def start_life(folder: Path) -> Generator[StartLife]:
    """Start a run in another process."""
    started: list[RunProcess] = []

    def start(*prefix: str, **options: Any) -> RunProcess:
        started.append(RunProcess(folder, *prefix, **options))
        return started[-1]

    yield start
    for life in started:
        life.kill()
