"""Rate limit of sign-ins.

After five failures within five minutes from one address, at one account or at several, the next attempt from that
address has to wait, and longer after each further failure. So the owner of an account cannot be locked out from
elsewhere. Guessing from many addresses is slowed down by a larger limit for the account itself, which does not apply to
addresses from which its owner has signed in before.

An attempt counts as a failure from its start until it succeeds, so that parallel attempts gain nothing; one that came
too early does not count. A successful sign-in clears all failures of that account from that address; of the account,
and of the address, only the successful attempt: the owner of one account could otherwise guess at others.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from time import monotonic
from typing import TypeAlias

FREE_FAILURES = 5
#: For an account, from all addresses that are not known to be its owner's. One address alone cannot reach it.
FREE_FAILURES_PER_ACCOUNT = 50
WINDOW_SECONDS = 300.0
FIRST_WAIT_SECONDS = 15.0
MAX_WAIT_SECONDS = 900.0
MAX_ENTRIES = 10_000

#: Beyond this a wait is the longest one anyway.
_MAX_LEVEL = 16
_MAX_KEY_CHARS = 64
#: What counts together: `both`, `address` or `name`; the name; the network.
_CounterKey: TypeAlias = tuple[str, str, str]


class _AttemptCounter:
    """A counter of attempts."""

    __slots__ = ("blocked_until", "level", "times")

    def __init__(self, free: int) -> None:
        self.times: deque[float] = deque(maxlen=free)
        self.level = 0
        self.blocked_until = 0.0

    def record_attempt(self, now: float, free: int) -> None:
        if self.level and now > self.blocked_until + WINDOW_SECONDS:
            self.level = 0
        while self.times and self.times[0] < now - WINDOW_SECONDS:
            self.times.popleft()
        self.times.append(now)
        if self.level or len(self.times) >= free:
            self.blocked_until = now + min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**self.level)
            self.level = min(self.level + 1, _MAX_LEVEL)

    def forgive_one(self, now: float) -> None:
        if self.times:
            self.times.pop()
        self.level = max(0, self.level - 1)
        self.blocked_until = min(self.blocked_until, now)


class LoginThrottle:
    """The attempts of all accounts, in memory. The least recently used entry is dropped when there are too many."""

    def __init__(self, now: Callable[[], float] = monotonic, *, free_per_address: int = FREE_FAILURES) -> None:
        self._now = now
        self._free = {"both": FREE_FAILURES, "address": free_per_address, "name": FREE_FAILURES_PER_ACCOUNT}
        self._counters: OrderedDict[_CounterKey, _AttemptCounter] = OrderedDict()
        #: Accounts with addresses from which their owners signed in, the least recent first.
        self._trusted_addresses: OrderedDict[_CounterKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def start_attempt(self, name: str, address: str) -> float:
        """Register an attempt. Return 0 to continue, then call `record_success` if it succeeded; otherwise the seconds
        to wait: check no password.
        """
        now, keys = self._now(), self._build_keys(name, address)
        wait = max((counter.blocked_until - now for key in keys if (counter := self._counters.get(key))), default=0.0)
        if wait > 0:
            return wait
        for key in keys:
            self._get_counter(key).record_attempt(now, self._free[key[0]])
        return 0.0

    def record_success(self, name: str, address: str) -> None:
        """Forget failures of the name at this address and trust the address."""
        both, *others = self._build_keys(name, address)
        self._counters.pop(both, None)
        for key in others:
            if counter := self._counters.get(key):
                counter.forgive_one(self._now())
        self._trusted_addresses[both] = None
        self._trusted_addresses.move_to_end(both)
        if len(self._trusted_addresses) > MAX_ENTRIES:
            self._trusted_addresses.popitem(last=False)

    def _build_keys(self, name: str, address: str) -> tuple[_CounterKey, ...]:
        """Return what a try counts for, the account and the address together first."""
        name, network = name[:_MAX_KEY_CHARS], _to_network(address[:_MAX_KEY_CHARS])
        keys: tuple[_CounterKey, ...] = (("both", name, network), ("address", "", network))
        return keys if keys[0] in self._trusted_addresses else (*keys, ("name", name, ""))

    def _get_counter(self, key: _CounterKey) -> _AttemptCounter:
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= MAX_ENTRIES:
                self._counters.popitem(last=False)
            counter = self._counters[key] = _AttemptCounter(self._free[key[0]])
        self._counters.move_to_end(key)
        return counter


def _to_network(address: str) -> str:
    """Return the network of an address: one IPv6 address usually means the 2**64 around it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), 64), strict=False))
