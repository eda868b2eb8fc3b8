"""Who makes a call, and in which session run it is recorded.

A client is known by its principal (the account of the process or of the token) and by the name that it gives itself.
An MCP session, where the protocol has one, is one session run; else all that a client of a principal does is one.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from mcp.server.context import ServerRequestContext

from ...gate.sessions import Session, Sessions

Context: TypeAlias = ServerRequestContext[Any, Any]

#: The key of the principal in the scope of an HTTP request.
PRINCIPAL_KEY = "interlock.principal"
_FRAMEWORK = "mcp"
_MAX_NAME_CHARS = 64
#: A session without calls for so long ends; its client may continue in a new one.
_IDLE_SECONDS = 1_800.0
_MAX_SESSIONS = 1_024


class Caller(msgspec.Struct, frozen=True):
    """Who makes a request."""

    #: Who the client acts for.
    principal: str
    #: The name that the client gives itself.
    client: str
    #: The id of its MCP session. Empty: there is none.
    connection: str = ""


class _OpenSession(msgspec.Struct):
    opening: "asyncio.Task[Session]"
    used_at: float
    active: int = 0


def principal_of_process(name: str) -> Callable[[Context], str]:
    """Return a function that names the principal of a request: the one of the HTTP request, else of the process."""

    def find(ctx: Context) -> str:
        scope = getattr(ctx.request, "scope", None)
        return name if scope is None else str(scope.get(PRINCIPAL_KEY, name))

    return find


class Clients:
    """The session runs of all clients of a gateway."""

    def __init__(self, sessions: Sessions, find_principal: Callable[[Context], str]) -> None:
        self._sessions = sessions
        self._find_principal = find_principal
        self._open: dict[Caller, _OpenSession] = {}
        self._loop = asyncio.get_running_loop()

    def identify(self, ctx: Context) -> Caller:
        """Return who makes a request."""
        params = ctx.session.client_params
        headers = getattr(ctx.request, "headers", None)
        return Caller(
            self._find_principal(ctx),
            _clean_name("" if params is None else params.client_info.name),
            "" if headers is None else _clean_name(headers.get("mcp-session-id", ""), ""),
        )

    async def session_of(self, caller: Caller) -> Session:
        """Return the session run of a client. It is opened by the first call."""
        known = self._open.get(caller)
        if known is None:
            await self._end_idle()
            opening = asyncio.ensure_future(
                self._sessions.open(requester=caller.principal, client=caller.client, framework=_FRAMEWORK)
            )
            known = self._open.setdefault(caller, _OpenSession(opening, 0))
        known.used_at = self._loop.time()
        try:
            return await asyncio.shield(known.opening)
        except Exception:
            self.forget(caller)
            raise

    def forget(self, caller: Caller) -> None:
        """Open another session run for the next call: the last one is over."""
        self._open.pop(caller, None)

    async def close(self) -> None:
        """End all sessions. Those with open questions can be continued."""
        ended, self._open = list(self._open.values()), {}
        for session in ended:
            await self._end(session)

    async def _end_idle(self) -> None:
        oldest_first = sorted(self._open, key=lambda caller: self._open[caller].used_at)
        since = self._loop.time() - _IDLE_SECONDS
        surplus = oldest_first[: max(0, len(oldest_first) - _MAX_SESSIONS + 1)]
        for caller in {*surplus, *(caller for caller in oldest_first if self._open[caller].used_at < since)}:
            await self._end(self._open.pop(caller))

    async def _end(self, session: _OpenSession) -> None:
        if session.opening.done() and session.opening.exception() is None:
            await self._sessions.end(session.opening.result())
        else:
            session.opening.cancel()


def _clean_name(name: str, default: str = "client") -> str:
    """Return a name that a client gives itself as one that can be shown and compared."""
    return "".join(filter(str.isprintable, name)).strip()[:_MAX_NAME_CHARS] or default
