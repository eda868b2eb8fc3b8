"""Rate limit of sign-ins.

After five failures within five minutes from one address, at one account or at several, the next attempt from that
address has to wait, and longer after each further failure. So the owner of an account cannot be locked out from
elsewhere. Guessing from many addresses is slowed down by a larger limit for the account itself, which does not apply to
addresses from which its owner has signed in before.

An attempt counts as a failure from its start until it succeeds, so that parallel attempts gain nothing; one that came
too early does not count. A successful sign-in clears all failures of that account from that address; of the account,
and of the address, only the successful attempt: the owner of one account could otherwise guess at others.

The counters are in the server's database: servers that share it share them, and a restart forgets none.
"""

from collections import deque
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, IPv6Network, ip_address
from time import time
from typing import TypeAlias

import msgspec

from ....domain.json import escape_surrogates
from ..database.interface import Connection, Database

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
#: Nothing is left of a counter that was not used for so long.
_EXPIRY_SECONDS = MAX_WAIT_SECONDS + WINDOW_SECONDS
#: What counts together: `both`, `address` or `name`; the name; the network.
_CounterKey: TypeAlias = tuple[str, str, str]

_KEY = "kind = ? AND name = ? AND network = ?"
_SELECT_COUNTER = f"SELECT times, level, blocked_until FROM login_attempts WHERE {_KEY}"  # noqa: S608
_UPSERT_COUNTER = """INSERT INTO login_attempts (kind, name, network, times, level, blocked_until, used_at)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, name, network) DO UPDATE SET times = excluded.times,
    level = excluded.level, blocked_until = excluded.blocked_until, used_at = excluded.used_at"""
_DELETE_COUNTER = f"DELETE FROM login_attempts WHERE {_KEY}"  # noqa: S608
_DELETE_EXPIRED = "DELETE FROM login_attempts WHERE used_at < ?"
_COUNT = "SELECT count(*) FROM login_attempts"
_DELETE_OLDEST = """DELETE FROM login_attempts WHERE (kind, name, network) IN (
    SELECT kind, name, network FROM login_attempts ORDER BY used_at LIMIT ?)"""
_IS_KNOWN = "SELECT 1 FROM login_networks WHERE name = ? AND network = ?"
_UPSERT_NETWORK = """INSERT INTO login_networks (name, network, used_at) VALUES (?, ?, ?)
    ON CONFLICT (name, network) DO UPDATE SET used_at = excluded.used_at"""
_COUNT_NETWORKS = "SELECT count(*) FROM login_networks"
_DELETE_OLDEST_NETWORKS = """DELETE FROM login_networks WHERE (name, network) IN (
    SELECT name, network FROM login_networks ORDER BY used_at LIMIT ?)"""


class _AttemptCounter:
    """A counter of attempts."""

    __slots__ = ("blocked_until", "level", "times")

    def __init__(self, times: Iterable[float], level: int, blocked_until: float, free: int) -> None:
        self.times: deque[float] = deque(times, maxlen=free)
        self.level = level
        self.blocked_until = blocked_until

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
    """The attempts of all accounts. The least recently used entry is dropped when there are too many."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], float] = time,
        *,
        free_per_address: int = FREE_FAILURES,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._database = database
        self._now = now
        self._max_entries = max_entries
        self._free = {"both": FREE_FAILURES, "address": free_per_address, "name": FREE_FAILURES_PER_ACCOUNT}

    async def start_attempt(self, name: str, address: str) -> float:
        """Register an attempt. Return 0 to continue, then call `record_success` if it succeeded; otherwise the seconds
        to wait: check no password.
        """
        now, both = self._now(), _to_key(name, address)
        wait = await self._database.read(lambda connection: self._find_wait(connection, both, now))
        if wait > 0:  # the cheap answer, which most guesses get
            return wait

        def record(connection: Connection) -> float:
            if (wait := self._find_wait(connection, both, now)) > 0:
                return wait
            connection.execute(_DELETE_EXPIRED, (now - _EXPIRY_SECONDS,))
            for key in _list_keys(connection, both):
                free = self._free[key[0]]
                counter = _find(connection, key, free) or _AttemptCounter((), 0, 0.0, free)
                counter.record_attempt(now, free)
                _save(connection, key, counter, now)
            _delete_excess(connection, self._max_entries, _COUNT, _DELETE_OLDEST)
            return 0.0

        return await self._database.run(record)

    async def record_success(self, name: str, address: str) -> None:
        """Forget failures of the name at this address and trust the address."""
        now, both = self._now(), _to_key(name, address)

        def forgive(connection: Connection) -> None:
            _, *others = _list_keys(connection, both)
            connection.execute(_DELETE_COUNTER, both)
            for key in others:
                if counter := _find(connection, key, self._free[key[0]]):
                    counter.forgive_one(now)
                    _save(connection, key, counter, now)
            connection.execute(_UPSERT_NETWORK, (*both[1:], now))
            _delete_excess(connection, self._max_entries, _COUNT_NETWORKS, _DELETE_OLDEST_NETWORKS)

        await self._database.run(forgive)

    async def count(self) -> int:
        """Return how many counters there are."""
        return await self._database.read(lambda connection: connection.execute(_COUNT).fetchone()[0])

    def _find_wait(self, connection: Connection, both: _CounterKey, now: float) -> float:
        found = (_find(connection, key, self._free[key[0]]) for key in _list_keys(connection, both))
        waits = [counter.blocked_until - now for counter in found if counter]
        # One that is longer was made by a clock that was wrong.
        return max((wait for wait in waits if 0 < wait <= MAX_WAIT_SECONDS), default=0.0)


def _to_key(name: str, address: str) -> _CounterKey:
    """Return what counts for the account and the address together."""
    name = escape_surrogates(name[:_MAX_KEY_CHARS])
    return "both", name, _to_network(escape_surrogates(address[:_MAX_KEY_CHARS]))


def _list_keys(connection: Connection, both: _CounterKey) -> tuple[_CounterKey, ...]:
    """Return what an attempt counts for, the account and the address together first."""
    _, name, network = both
    keys: tuple[_CounterKey, ...] = (both, ("address", "", network))
    return keys if connection.execute(_IS_KNOWN, (name, network)).fetchone() else (*keys, ("name", name, ""))


def _find(connection: Connection, key: _CounterKey, free: int) -> _AttemptCounter | None:
    row = connection.execute(_SELECT_COUNTER, key).fetchone()
    return _AttemptCounter(msgspec.json.decode(row[0], type=list[float]), row[1], row[2], free) if row else None


def _delete_excess(connection: Connection, limit: int, count: str, delete_oldest: str) -> None:
    excess = connection.execute(count).fetchone()[0] - limit
    if excess > 0:
        connection.execute(delete_oldest, (excess,))


def _save(connection: Connection, key: _CounterKey, counter: _AttemptCounter, now: float) -> None:
    times = msgspec.json.encode(list(counter.times)).decode()
    used_at = max(now, counter.blocked_until)  # as long as it blocks, others go first
    connection.execute(_UPSERT_COUNTER, (*key, times, counter.level, counter.blocked_until, used_at))


def _to_network(address: str) -> str:
    """Return the network of an address: one IPv6 address usually means the 2**64 around it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), 64), strict=False))
