"""Authentication: a key in `Authorization: Bearer ik_...`, or a session cookie. Never the address or the body.

Operations that are not about one run are checked here, before the body is read; those about a run are checked by the
service, which knows its owner. A signed-in browser must also send the CSRF token with every change.
"""

from collections.abc import Awaitable, Callable
from functools import cache

import msgspec
from starlette.requests import Request

from ...domain.call import Channel
from ..core.identity.permissions import PERMISSIONS, RELATIONSHIPS, Operation, PermissionScope, Relationship
from ..core.identity.principal import Principal
from ..core.identity.sessions import AuthenticatedSession, is_valid_csrf_token
from ..core.service import Service
from .errors import ApiError

CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_CREDENTIAL_CHARS = 200
_BEARER = "bearer "

_UNAUTHENTICATED = ApiError(
    401,
    "no_credentials",
    "Authentication required: send an API key (Authorization: Bearer ik_...) or sign in. Nothing was done.",
    headers={"WWW-Authenticate": "Bearer"},
)


class PublicCall(msgspec.Struct, frozen=True):
    """A request to the server."""

    request: Request
    service: Service


class Call(PublicCall, frozen=True):
    """A request of an authenticated principal."""

    principal: Principal
    #: Of a browser; None: it is a program with a key.
    session: AuthenticatedSession | None
    #: Authenticates again: None once the key was revoked or the session ended.
    reauthenticate: Callable[[], Awaitable[Principal | None]]

    @property
    def channel(self) -> Channel:
        """The channel of an answer in this request."""
        return "rest" if self.session is None else "console"


def get_service(request: Request) -> Service:
    """Return the service of the app that handles the request."""
    return request.app.state.service


def get_address(request: Request) -> str:
    """Return the address of the client; empty: unknown."""
    return request.client.host if request.client else ""


def count_request(request: Request, name: str) -> None:
    """Count a request for a principal or an address. Raise `ApiError` 429 when there are too many of theirs."""
    state = request.app.state
    state.rate_limiter.acquire(name)
    state.concurrency_limiter.acquire(request.scope, name)


def limit_address(request: Request) -> None:
    """Limit the rate of public routes by address, before anything is read."""
    count_request(request, f"address:{get_address(request)}")


async def authorize(request: Request, operation: Operation) -> Call:
    """Authenticate a request, and check what can be checked before its body is read."""
    call = await authenticate(request)
    count_request(request, call.principal.name)
    if not is_run_scoped(operation):
        await call.service.guard.check(call.principal, operation)
    return call


@cache
def is_run_scoped(operation: Operation) -> bool:
    """Return True if the permission depends on the run."""
    reaches = frozenset(PERMISSIONS[operation].values())
    bond = RELATIONSHIPS.get(operation)
    return bool(reaches & {PermissionScope.OWN, PermissionScope.CREATED}) or bond in (
        Relationship.REQUESTER,
        Relationship.INVOLVED,
    )


async def authenticate(request: Request) -> Call:
    """Authenticate a request. Raise `ApiError` 401 without valid credentials."""
    service, headers = get_service(request), request.headers.getlist("authorization")
    if headers:
        key = headers[0][len(_BEARER) :].strip() if headers[0].lower().startswith(_BEARER) else ""
        is_valid = len(headers) == 1 and 0 < len(key) <= _MAX_CREDENTIAL_CHARS
        principal = await service.api_keys.authenticate(key) if is_valid else None
        if principal is None:
            raise _unauthenticated_error(request)
        return Call(request, service, principal, None, lambda: service.api_keys.authenticate(key))
    token = request.cookies.get(session_cookie_name(request), "")[:_MAX_CREDENTIAL_CHARS]
    signed_in = await service.sessions.authenticate(token) if token else None
    if signed_in is None:
        raise _unauthenticated_error(request)
    if request.method not in SAFE_METHODS:
        require_csrf(signed_in, request.headers.get(CSRF_HEADER, ""))

    async def reauthenticate() -> Principal | None:
        found = await service.sessions.authenticate(token)
        return None if found is None else found.principal

    return Call(request, service, signed_in.principal, signed_in, reauthenticate)


def require_csrf(signed_in: AuthenticatedSession, token: str) -> None:
    """Raise `ApiError` if the CSRF token does not belong to the session."""
    if not is_valid_csrf_token(signed_in.csrf, token):
        raise ApiError(403, "csrf", f"The CSRF token ({CSRF_HEADER}) is missing or wrong. Nothing was done.")


def is_https(request: Request) -> bool:
    """Return True if the browser uses TLS, to us or to a proxy in front of us."""
    return request.url.scheme == "https" or get_service(request).public_url.startswith("https://")


def session_cookie_name(request: Request) -> str:
    """Return the cookie name. Over TLS it has a prefix that binds it to https; and to this host, unless it has a path
    of its own there.
    """
    prefix = "__Secure-" if get_service(request).settings.server.public_path else "__Host-"
    return f"{prefix}interlock" if is_https(request) else "interlock_session"


def _unauthenticated_error(request: Request) -> ApiError:
    """Return the 401 error. Guessing is slowed down by address: there is no name yet."""
    request.app.state.rate_limiter.acquire(f"address:{get_address(request)}")
    return _UNAUTHENTICATED
