"""Refusals in the journal: every one is counted, and not every one is a row.

Whoever is refused and asks again, as fast as they may, would else fill the disk of a journal that nothing is ever taken
out of. Within a minute the 1st, 10th, 100th, ... refusal of the same thing to the same somebody is written, with how
many it were; what they asked it about may differ and is said of those that are written.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from ..audit.audit_log import Journal

WINDOW_SECONDS = 60.0
MAX_COUNTED = 10_000
_STEP = 10


class _Count:
    __slots__ = ("next_written", "since", "times")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.next_written = 1


class Refusals:
    def __init__(self, journal: Journal, now: Callable[[], float] = monotonic) -> None:
        self._journal = journal
        self._now = now
        self._counts: OrderedDict[tuple[str, str], _Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    async def note(self, by: str, action: str, target: str = "") -> None:
        """Somebody was refused something."""
        count = self._of(by, action)
        count.times += 1
        if count.times < count.next_written:
            return
        count.next_written *= _STEP
        detail = {"times": str(count.times), "within": f"{WINDOW_SECONDS:g} s"} if count.times > 1 else {}
        await self._journal.add(by, action, target, outcome="refused", detail=detail)

    def _of(self, by: str, action: str) -> _Count:
        key, now = (by, action), self._now()
        count = self._counts.get(key)
        if count is None or now - count.since >= WINDOW_SECONDS:
            self._counts.pop(key, None)
            if len(self._counts) >= MAX_COUNTED:
                self._counts.popitem(last=False)
            count = self._counts[key] = _Count(now)
        return count
