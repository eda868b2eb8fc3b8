"""How many requests are under way at once: in all, and for each who asks.

A request is under way until its answer is taken, so whoever sends bodies slowly or reads answers slowly holds places.
One key, one person, or one address without either has a fifth of them at most; the others always find one.
"""

from collections import Counter

from starlette.types import Scope

from .errors import ApiError

MAX_CONCURRENT_REQUESTS = 500
_CALLER_SHARES = 5
_SCOPE_KEY = "interlock.present"


class ConcurrencyLimiter:
    def __init__(self, limit: int = MAX_CONCURRENT_REQUESTS) -> None:
        self._limit = limit
        self._caller_limit = max(1, limit // _CALLER_SHARES)
        self._active = 0
        self._active_by_caller: Counter[str] = Counter()

    def begin(self, scope: Scope) -> bool:
        """False: there are too many. Whoever arrived leaves, too, either way."""
        self._active += 1
        scope[_SCOPE_KEY] = []
        return self._active <= self._limit

    def acquire(self, scope: Scope, name: str) -> None:
        """It turned out whose request it is. `ApiError` 429 when they have as many as one may."""
        if self._active_by_caller[name] >= self._caller_limit:
            raise ApiError(
                429,
                "too_many_at_once",
                f"{self._caller_limit} requests of {name} are under way. Nothing was done; try again when one has ended.",
                headers={"Retry-After": "1"},
            )
        self._active_by_caller[name] += 1
        scope[_SCOPE_KEY].append(name)

    def release(self, scope: Scope, name: str) -> None:
        """It no longer counts for that name."""
        scope[_SCOPE_KEY].remove(name)
        self._decrement(name)

    def finish(self, scope: Scope) -> None:
        self._active -= 1
        for name in scope[_SCOPE_KEY]:
            self._decrement(name)

    def _decrement(self, name: str) -> None:
        self._active_by_caller[name] -= 1
        if not self._active_by_caller[name]:
            del self._active_by_caller[name]
