"""The path of `[server] public_url`: `/interlock`, where a proxy serves `https://host/interlock` from here.

Everything else writes addresses from the root of the server, without this path. It is removed from the requests of a
proxy that passes it on (one that strips it is fine, too), and put before redirects and the paths of cookies. The
console puts it before the addresses in its templates and scripts (`console/addresses.py`).
"""

import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE_PATH = re.compile(rb"(?i)(;\s*path=)/([^;]*)")


class PublicPathMiddleware:
    """Serves an application below a path. It is the outermost: all others see the paths of the application."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app, self._path, self._raw_path = app, path, path.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, self._to_public(name, value)) for name, value in message["headers"]]
            await send(message)

        await self._app(self._to_own(scope) if scope["type"] == "http" else scope, receive, sending)

    def _to_own(self, scope: Scope) -> Scope:
        path, raw_path = scope["path"], scope.get("raw_path") or b""
        if path != self._path and not path.startswith(f"{self._path}/"):
            return scope
        own: dict[str, Any] = {"path": path[len(self._path) :] or "/"}
        if raw_path.startswith(self._raw_path):
            own["raw_path"] = raw_path[len(self._raw_path) :] or b"/"
        return {**scope, **own}

    def _to_public(self, name: bytes, value: bytes) -> bytes:
        if name == b"location" and value.startswith(b"/") and not value.startswith(b"//"):
            return self._raw_path + value
        if name == b"set-cookie":
            return _COOKIE_PATH.sub(lambda found: found[1] + self._raw_path + (found[2] and b"/" + found[2]), value, 1)
        return value
