"""Rate and concurrency limits: a token bucket per principal."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from . import body
from .body import body_timeout_error, body_too_large_error
from .connections import WHOLE_BODY
from .errors import ApiError

MAX_BUCKETS = 10_000


class _Bucket:
    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class RateLimiter:
    """Token buckets in memory. The least recently used one is dropped when there are too many."""

    def __init__(self, per_second: float, burst: int, now: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, name: str) -> None:
        """Take a token. Raise `ApiError` 429 when there is none left."""
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


MAX_CONCURRENT_REQUESTS = 500
_CALLER_SHARES = 5
HEALTH_PATHS = frozenset({"/health/live", "/health/ready"})
_SCOPE_KEY = "interlock.present"


class _Slot:
    """The place of a request, and whom it is counted for."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: list[str] = []


class ConcurrencyLimiter:
    """Limits concurrent requests, in total and per principal. Health checks are not counted, nor are streams of
    events, which have a limit of their own (`max_readers`): neither can lock out anybody who sends a request.
    """

    def __init__(self, limit: int = MAX_CONCURRENT_REQUESTS) -> None:
        self._limit = limit
        self._caller_limit = max(1, limit // _CALLER_SHARES)
        self._active: set[_Slot] = set()
        self._active_by_caller: Counter[str] = Counter()

    def begin(self, scope: Scope) -> bool:
        """Count a request. Return False when there are too many. `finish` must follow either way."""
        scope[_SCOPE_KEY] = _Slot()
        if scope["path"] in HEALTH_PATHS:
            return True
        self._active.add(scope[_SCOPE_KEY])
        return len(self._active) <= self._limit

    def acquire(self, scope: Scope, name: str) -> None:
        """Attribute the request to a principal. Raise `ApiError` 429 when they are at their limit."""
        if self._active_by_caller[name] >= self._caller_limit:
            raise ApiError(
                429,
                "too_many_at_once",
                f"{self._caller_limit} requests of {name} are under way."
                " Nothing was done; try again when one has ended.",
                headers={"Retry-After": "1"},
            )
        self._active_by_caller[name] += 1
        scope[_SCOPE_KEY].names.append(name)

    def release(self, scope: Scope, name: str) -> None:
        """Stop counting the request for that principal."""
        scope[_SCOPE_KEY].names.remove(name)
        self._decrement(name)

    def finish(self, scope: Scope) -> None:
        """Stop counting a request: it is over, or became a stream of events."""
        self._active.discard(scope[_SCOPE_KEY])
        while names := scope[_SCOPE_KEY].names:
            self._decrement(names.pop())

    def _decrement(self, name: str) -> None:
        self._active_by_caller[name] -= 1
        if not self._active_by_caller[name]:
            del self._active_by_caller[name]


class LimitedReceive:
    """The `receive` of one request, with size and time limits."""

    __slots__ = ("_deadline", "_is_complete", "_is_counted", "_limiter", "_name", "_receive", "_scope", "_size")

    def __init__(self, scope: Scope, headers: Headers, receive: Receive, limiter: ConcurrencyLimiter) -> None:
        self._scope = scope
        self._receive = receive
        self._limiter = limiter
        self._name = f"body:{scope['client'][0] if scope.get('client') else ''}"
        self._size = 0
        self._is_counted = False
        self._is_complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._deadline = 0.0 if self._is_complete else asyncio.get_running_loop().time() + body.BODY_SECONDS

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        if not self._is_counted:
            self._limiter.acquire(self._scope, self._name)
            self._is_counted = True
        message = await (self._receive() if WHOLE_BODY in self._scope else self._receive_in_time())
        self._size += len(message.get("body", b""))
        if self._size > body.MAX_BODY_BYTES:
            raise body_too_large_error(body.MAX_BODY_BYTES)
        if not message.get("more_body", False):
            self._is_complete = True
            self._limiter.release(self._scope, self._name)
        return message

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            raise body_timeout_error() from None
