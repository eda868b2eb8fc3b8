"""How long tests wait, and how much work they accept."""

from collections.abc import Generator
from contextlib import contextmanager
from time import process_time

#: Until a test gives up waiting for a fact. It only ends tests that would wait for ever: a green run on a busy machine
#: is far from it. It is shorter than `sleep 60`, which tests start to be ended, and than pytest's own timeout.
HANG_SECONDS = 50


@contextmanager
def cpu_seconds_below(limit: float) -> Generator[None]:
    """Fail when this process works longer. Unlike time on a clock, a busy machine does not change it."""
    before = process_time()
    yield
    assert process_time() - before < limit
