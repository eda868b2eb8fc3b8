"""Reads form bodies before anything else: limited in size and time, like all other bodies."""

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..rest.body import read_body
from ..rest.caller import SAFE_METHODS
from ..rest.errors import ApiError, error_response

MAX_FORM_BYTES = 512 << 10


class FormBodyLimiter:
    """Middleware that reads form bodies within limits."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(Request(scope, receive), MAX_FORM_BYTES)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, _replay_body(body, receive), send)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """What was read, and then whatever comes."""
    is_replayed = False

    async def given() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given
