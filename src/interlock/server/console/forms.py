"""Forms are read here, before anything else looks at them: bounded in size and time, like all other bodies."""

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..rest.body import read_body
from ..rest.caller import SAFE_METHODS
from ..rest.errors import ApiError, answer_error

MAX_FORM_BYTES = 512 << 10


class BoundedBodies:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(Request(scope, receive), MAX_FORM_BYTES)
        except ApiError as error:
            await answer_error(error)(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read, and then whatever comes."""
    is_given = False

    async def given() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given
