"""How often a name, and an address, may try to sign in.

After five failures within five minutes the next try has to wait, and longer after each further failure. A try counts
as a failure from its start until it is known to be right, so that many at once gain nothing; one that came too early
does not count. A name is forgiven all when its owner signs in, an address only the try that was right: whoever has one
account could else go on guessing at others.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from time import monotonic

FREE_FAILURES = 5
WINDOW_SECONDS = 300.0
FIRST_WAIT_SECONDS = 15.0
MAX_WAIT_SECONDS = 900.0
MAX_ENTRIES = 10_000

#: Beyond this a wait is the longest one anyway.
_MAX_LEVEL = 16
_MAX_KEY_CHARS = 64


class _Tries:
    """Of one name or one address."""

    __slots__ = ("level", "times", "until")

    def __init__(self, free: int) -> None:
        self.times: deque[float] = deque(maxlen=free)
        self.level = 0
        self.until = 0.0

    def start(self, now: float, free: int) -> None:
        if self.level and now > self.until + WINDOW_SECONDS:
            self.level = 0
        while self.times and self.times[0] < now - WINDOW_SECONDS:
            self.times.popleft()
        self.times.append(now)
        if self.level or len(self.times) >= free:
            self.until = now + min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**self.level)
            self.level = min(self.level + 1, _MAX_LEVEL)

    def forgive_one(self, now: float) -> None:
        if self.times:
            self.times.pop()
        self.level = max(0, self.level - 1)
        self.until = min(self.until, now)


class Attempts:
    """Of everybody, in memory. The least recently used entry goes when there are too many."""

    def __init__(
        self, now: Callable[[], float] = monotonic, *, free_per_name: int = FREE_FAILURES, free_per_address: int = 5
    ) -> None:
        self._now = now
        self._free = {"name": free_per_name, "address": free_per_address}
        self._tries: OrderedDict[tuple[str, str], _Tries] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tries)

    def start(self, name: str, address: str) -> float:
        """0: go on, and say `succeeded` if it did. Otherwise the seconds to wait; look at no password."""
        now, keys = self._now(), _keys(name, address)
        wait = max((tries.until - now for key in keys if (tries := self._tries.get(key))), default=0.0)
        if wait > 0:
            return wait
        for key in keys:
            self._of(key).start(now, self._free[key[0]])
        return 0.0

    def succeeded(self, name: str, address: str) -> None:
        for_name, for_address = _keys(name, address)
        self._tries.pop(for_name, None)
        if tries := self._tries.get(for_address):
            tries.forgive_one(self._now())

    def _of(self, key: tuple[str, str]) -> _Tries:
        tries = self._tries.get(key)
        if tries is None:
            if len(self._tries) >= MAX_ENTRIES:
                self._tries.popitem(last=False)
            tries = self._tries[key] = _Tries(self._free[key[0]])
        self._tries.move_to_end(key)
        return tries


def _keys(name: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("name", name[:_MAX_KEY_CHARS]), ("address", _network(address[:_MAX_KEY_CHARS]))


def _network(address: str) -> str:
    """Whoever has one IPv6 address mostly has the 2**64 around it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), 64), strict=False))
