"""Bodies on their way in, whoever reads them: forms of the console as well as JSON. However one says it is sent, a body
has at most 1 MiB and 30 seconds, and one address has so many unfinished ones at a time (`crowd`)."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from . import body
from .body import body_too_large_error, body_timeout_error
from .concurrency import ConcurrencyLimiter


class LimitedReceive:
    """The `receive` of one request, with these bounds."""

    __slots__ = ("_limiter", "_is_counted", "_is_complete", "_name", "_receive", "_scope", "_size", "_deadline")

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
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise body_timeout_error() from None
        self._size += len(message.get("body", b""))
        if self._size > body.MAX_BODY_BYTES:
            raise body_too_large_error(body.MAX_BODY_BYTES)
        if not message.get("more_body", False):
            self._is_complete = True
            self._limiter.release(self._scope, self._name)
        return message
