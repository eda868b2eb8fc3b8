"""How fast somebody may ask: a bucket of tokens each, filled at a steady pace."""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic

from .errors import ApiError

MAX_BUCKETS = 10_000


class _Bucket:
    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class RateLimiter:
    """In memory. The one that asked longest ago is forgotten when there are too many, which only does it good."""

    def __init__(self, per_second: float, burst: int, now: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, name: str) -> None:
        """`ApiError` 429 when there is none left."""
        now = self._now()
        bucket = self._get_bucket(name, now)
        bucket.left = min(self._burst, bucket.left + max(0.0, now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.left < 1:
            wait = ceil((1 - bucket.left) / self._per_second)
            raise ApiError(
                429,
                "too_many_requests",
                f"More than {self._burst} requests at once, or {self._per_second:g} a second over time. Nothing was "
                f"done; try again in {wait} s.",
                {"retry_after_seconds": wait},
                {"Retry-After": str(wait)},
            )
        bucket.left -= 1

    def _get_bucket(self, name: str, now: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._buckets.popitem(last=False)
            bucket = self._buckets[name] = _Bucket(float(self._burst), now)
        self._buckets.move_to_end(name)
        return bucket
