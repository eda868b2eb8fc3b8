"""How many requests are under way at once: in all, and for each who asks.

A request is under way until its answer is taken, so whoever sends bodies slowly or reads answers slowly holds places.
One key, one person, or one address without either has a fifth of them at most; the others always find one.
"""

from collections import Counter

from starlette.types import Scope

from .errors import ApiError

MAX_AT_ONCE = 500
_SHARES = 5
_PRESENT = "interlock.present"


class Crowd:
    def __init__(self, most: int = MAX_AT_ONCE) -> None:
        self._most = most
        self._share = max(1, most // _SHARES)
        self._now = 0
        self._present: Counter[str] = Counter()

    def arrive(self, scope: Scope) -> bool:
        """False: there are too many. Whoever arrived leaves, too, either way."""
        self._now += 1
        scope[_PRESENT] = []
        return self._now <= self._most

    def known(self, scope: Scope, name: str) -> None:
        """It turned out whose request it is. `ApiError` 429 when they have as many as one may."""
        if self._present[name] >= self._share:
            raise ApiError(
                429,
                "too_many_at_once",
                f"{self._share} requests of {name} are under way. Nothing was done; try again when one has ended.",
                headers={"Retry-After": "1"},
            )
        self._present[name] += 1
        scope[_PRESENT].append(name)

    def gone(self, scope: Scope, name: str) -> None:
        """It no longer counts for that name."""
        scope[_PRESENT].remove(name)
        self._less(name)

    def leave(self, scope: Scope) -> None:
        self._now -= 1
        for name in scope[_PRESENT]:
            self._less(name)

    def _less(self, name: str) -> None:
        self._present[name] -= 1
        if not self._present[name]:
            del self._present[name]
