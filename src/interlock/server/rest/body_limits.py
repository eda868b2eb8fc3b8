"""Bodies on their way in, whoever reads them: forms of the console as well as JSON. However one says it is sent, a body
has at most 1 MiB and 30 seconds, and one address has so many unfinished ones at a time (`crowd`)."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from . import body
from .body import too_large, too_slow
from .concurrency import Crowd


class Incoming:
    """The `receive` of one request, with these bounds."""

    __slots__ = ("_crowd", "_is_known", "_is_whole", "_name", "_receive", "_scope", "_size", "_until")

    def __init__(self, scope: Scope, headers: Headers, receive: Receive, crowd: Crowd) -> None:
        self._scope = scope
        self._receive = receive
        self._crowd = crowd
        self._name = f"body:{scope['client'][0] if scope.get('client') else ''}"
        self._size = 0
        self._is_known = False
        self._is_whole = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._until = 0.0 if self._is_whole else asyncio.get_running_loop().time() + body.BODY_SECONDS

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        if not self._is_known:
            self._crowd.known(self._scope, self._name)
            self._is_known = True
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise too_slow() from None
        self._size += len(message.get("body", b""))
        if self._size > body.MAX_BODY_BYTES:
            raise too_large(body.MAX_BODY_BYTES)
        if not message.get("more_body", False):
            self._is_whole = True
            self._crowd.gone(self._scope, self._name)
        return message
