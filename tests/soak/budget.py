"""The time of a long test. `SOAK_SECONDS` sets it; `make soak` ends in time with the default."""

import os
from collections.abc import Callable, Iterator
from time import monotonic

from tests.patience import HANG_SECONDS

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))


class Budget:
    """Seconds that a test may repeat itself for, and how often it did."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.done = 0
        self._start = monotonic()

    @property
    def used(self) -> float:
        return monotonic() - self._start

    def rounds(self, part: float = 1.0, enough: Callable[[], bool] = lambda: True) -> Iterator[int]:
        """Count rounds until this part of the time is used and there was enough. There is at least one."""
        until = part * self.seconds
        while True:
            yield self.done
            self.done += 1
            if self.used >= until and (enough() or self.used >= until + HANG_SECONDS):
                return
