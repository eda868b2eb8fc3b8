"""Refusals in the journal: every one is counted, and not every one is a row.

Whoever is refused and asks again, as fast as they may, would else fill the disk of a journal that nothing is ever taken
out of. Within a minute the 1st, 10th, 100th, ... refusal of the same thing to the same somebody is written, with how
many it were; what they asked it about may differ and is said of those that are written.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from ..audit.audit_log import AuditLog

REFUSAL_WINDOW_SECONDS = 60.0
MAX_REFUSAL_COUNTERS = 10_000
_REFUSAL_STEP = 10


class _RefusalCounter:
    __slots__ = ("next_recorded", "since", "times")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.next_recorded = 1


class RefusalRecorder:
    def __init__(self, audit_log: AuditLog, now: Callable[[], float] = monotonic) -> None:
        self._audit_log = audit_log
        self._now = now
        self._counters: OrderedDict[tuple[str, str], _RefusalCounter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    async def record(self, by: str, action: str, target: str = "") -> None:
        """Somebody was refused something."""
        counter = self._get_counter(by, action)
        counter.times += 1
        if counter.times < counter.next_recorded:
            return
        counter.next_recorded *= _REFUSAL_STEP
        detail = {"times": str(counter.times), "within": f"{REFUSAL_WINDOW_SECONDS:g} s"} if counter.times > 1 else {}
        await self._audit_log.add(by, action, target, outcome="refused", detail=detail)

    def _get_counter(self, by: str, action: str) -> _RefusalCounter:
        key, now = (by, action), self._now()
        counter = self._counters.get(key)
        if counter is None or now - counter.since >= REFUSAL_WINDOW_SECONDS:
            self._counters.pop(key, None)
            if len(self._counters) >= MAX_REFUSAL_COUNTERS:
                self._counters.popitem(last=False)
            counter = self._counters[key] = _RefusalCounter(now)
        return counter
