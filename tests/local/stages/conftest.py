"""What the tests of the local tools share: a small project, and a check that no process is left behind."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from interlock.sandbox.commands.probe import choose_sandbox

from .signals import Pipe

CODE = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project, and nothing beside it."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/sums.py").write_text(CODE)
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def pipe(root: Path) -> Iterator[Callable[[str], Pipe]]:
    """Makes pipes in the project, by name."""
    with ExitStack() as opened:

        def make(name: str) -> Pipe:
            made = Pipe(root / name)
            opened.callback(made.close)
            return made

        yield make


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = _children()
    yield
    assert _children() <= before


@pytest.fixture
def confined() -> None:
    """For tests of what a command does: where it is not held back, each one is a question."""
    held = choose_sandbox().confinement
    if held.degraded:
        pytest.skip(f"only {held.backend} works here")


def _children() -> set[str]:
    """The processes that this one started, with those of other threads."""
    found: set[str] = set()
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(OSError):  # it has ended
            found.update((thread / "children").read_text().split())
    return found
