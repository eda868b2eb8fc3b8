"""The time of a long test. `SOAK_SECONDS` sets it; `make soak` ends in time with the default."""

import os
from collections.abc import Iterator
from time import monotonic

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

    def rounds(self, part: float = 1.0) -> Iterator[int]:
        """Count rounds until this part of the time is used. There is at least one."""
        while True:
            yield self.done
            self.done += 1
            if self.used >= part * self.seconds:
                return
