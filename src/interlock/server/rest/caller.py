"""Authentication: a key in `Authorization: Bearer ik_...`, or a session cookie. Never the address or the body.

Every route declares its operation with `require_permission(Operation.X)`. Operations that are not about one run are
checked here, before the body is read; those about a run are checked by the service, which knows its owner. A signed-in
browser must also send the CSRF token with every change.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request

from ..core.identity.permissions import PERMISSIONS, RELATIONSHIPS, Operation, PermissionScope, Relationship
from ..core.identity.principal import Principal
from ..core.identity.sessions import AuthenticatedSession, is_valid_csrf_token
from ..core.service import Service
from .errors import ApiError
from .limits import ConcurrencyLimiter, RateLimiter

CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_CREDENTIAL_CHARS = 200
_BEARER = "bearer "

_UNAUTHENTICATED = ApiError(
    401,
    "no_credentials",
    "This needs a key (Authorization: Bearer ik_...) or a sign-in that counts. Nothing was done.",
    headers={"WWW-Authenticate": "Bearer"},
)


class Caller(msgspec.Struct, frozen=True):
    """The authenticated principal of a request."""

    principal: Principal
    #: Of a browser; None: it is a program with a key.
    session: AuthenticatedSession | None
    #: Authenticates again: None once the key was revoked or the session ended.
    reauthenticate: Callable[[], Awaitable[Principal | None]]


def get_service(request: Request) -> Service:
    return request.app.state.service


def get_rate_limiter(request: Request) -> RateLimiter:
    return request.app.state.rate_limiter


async def _provide_service(request: Request) -> Service:
    """Return the service. A dependency that is not async is called in a thread, which would cost a third of a small
    request.
    """
    return get_service(request)


def get_concurrency_limiter(request: Request) -> ConcurrencyLimiter:
    return request.app.state.concurrency_limiter


def limit_address(request: Request) -> None:
    """Limit the rate of public routes by address, before anything is read."""
    name = f"address:{request.client.host if request.client else ''}"
    get_rate_limiter(request).acquire(name)
    get_concurrency_limiter(request).acquire(request.scope, name)


AddressLimit = Annotated[None, Depends(limit_address)]
ServiceDep = Annotated[Service, Depends(_provide_service)]


class PermissionCheck:
    """The dependency that authenticates and authorizes one route."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._is_run_scoped = is_run_scoped(operation)

    async def __call__(self, request: Request) -> Caller:
        service = get_service(request)
        caller = await authenticate(request, service)
        get_rate_limiter(request).acquire(caller.principal.name)
        get_concurrency_limiter(request).acquire(request.scope, caller.principal.name)
        if not self._is_run_scoped:
            await service.guard.check(caller.principal, self.operation)
        return caller


def require_permission(operation: Operation) -> Any:
    """Return the dependency for a parameter's annotation: `caller: Annotated[Caller,
    require_permission(Operation.X)]`.
    """
    return Depends(PermissionCheck(operation))


def is_run_scoped(operation: Operation) -> bool:
    """Return True if the permission depends on the run."""
    reaches = frozenset(PERMISSIONS[operation].values())
    bond = RELATIONSHIPS.get(operation)
    return bool(reaches & {PermissionScope.OWN, PermissionScope.CREATED}) or bond in (
        Relationship.REQUESTER,
        Relationship.INVOLVED,
    )


async def authenticate(request: Request, service: Service) -> Caller:
    """Authenticate a request. Raise `ApiError` 401 without valid credentials."""
    headers = request.headers.getlist("authorization")
    if headers:
        key = headers[0][len(_BEARER) :].strip() if headers[0].lower().startswith(_BEARER) else ""
        is_valid = len(headers) == 1 and 0 < len(key) <= _MAX_CREDENTIAL_CHARS
        return await _authenticate_key(request, service, key if is_valid else "")
    token = request.cookies.get(session_cookie_name(request), "")[:_MAX_CREDENTIAL_CHARS]
    signed_in = await service.sessions.authenticate(token) if token else None
    if signed_in is None:
        raise _unauthenticated_error(request)
    if request.method not in SAFE_METHODS:
        require_csrf(signed_in, request.headers.get(CSRF_HEADER, ""))

    async def reauthenticate() -> Principal | None:
        found = await service.sessions.authenticate(token)
        return None if found is None else found.principal

    return Caller(signed_in.principal, signed_in, reauthenticate)


def require_csrf(signed_in: AuthenticatedSession, token: str) -> None:
    if not is_valid_csrf_token(signed_in.csrf, token):
        raise ApiError(
            403, "csrf", f"The token against forged requests ({CSRF_HEADER}) is missing or wrong. Nothing was done."
        )


def is_https(request: Request) -> bool:
    """Return True if the browser uses TLS, to us or to a proxy in front of us."""
    return request.url.scheme == "https" or get_service(request).public_url.startswith("https://")


def session_cookie_name(request: Request) -> str:
    """Return the cookie name. Over TLS it has a prefix that binds it to this host and to https."""
    return "__Host-interlock" if is_https(request) else "interlock_session"


async def _authenticate_key(request: Request, service: Service, key: str) -> Caller:
    principal = await service.api_keys.authenticate(key) if key else None
    if principal is None:
        raise _unauthenticated_error(request)
    return Caller(principal, None, lambda: service.api_keys.authenticate(key))


def _unauthenticated_error(request: Request) -> ApiError:
    """Return the 401 error. Guessing is slowed down by address: there is no name yet."""
    address = request.client.host if request.client else ""
    get_rate_limiter(request).acquire(f"address:{address}")
    return _UNAUTHENTICATED
