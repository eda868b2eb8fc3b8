"""Who a request comes from: a key in `Authorization: Bearer ik_...`, or a sign-in in a cookie. Never what its address
or its body says.

Every route declares its operation with `caller(Operation.X)`. What is not about one run is decided here, before the
body is read; what is about a run is decided by the service, which knows whose run it is. A browser that is signed in
must also send the token against forged requests with everything that changes something.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request

from ..core.identity.permissions import BONDS, PERMISSIONS, Bond, Operation, Reach
from ..core.identity.principal import Principal
from ..core.identity.sessions import SignedIn, is_csrf
from ..core.service import Service
from .concurrency import Crowd
from .errors import ApiError
from .rate_limit import Rates

CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_CREDENTIAL_CHARS = 200
_BEARER = "bearer "

_UNKNOWN = ApiError(
    401,
    "no_credentials",
    "This needs a key (Authorization: Bearer ik_...) or a sign-in that counts. Nothing was done.",
    headers={"WWW-Authenticate": "Bearer"},
)


class Caller(msgspec.Struct, frozen=True):
    who: Principal
    #: Of a browser; None: it is a program with a key.
    session: SignedIn | None
    #: Asks again who this is: None once the key was revoked or the sign-in ended.
    again: Callable[[], Awaitable[Principal | None]]


def service_of(request: Request) -> Service:
    return request.app.state.service


def rates_of(request: Request) -> Rates:
    return request.app.state.rates


async def _served(request: Request) -> Service:
    """A dependency that is not async is called in a thread, which would cost a third of a small request."""
    return service_of(request)


def crowd_of(request: Request) -> Crowd:
    return request.app.state.crowd


def knock(request: Request) -> None:
    """The dependency of what is open to everybody, before anything of them is read: they are known by their address."""
    name = f"address:{request.client.host if request.client else ''}"
    rates_of(request).take(name)
    crowd_of(request).known(request.scope, name)


Knocked = Annotated[None, Depends(knock)]
Served = Annotated[Service, Depends(_served)]


class ForOperation:
    """The dependency of one route. `operation` is what it is for."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._is_about_a_run = is_about_a_run(operation)

    async def __call__(self, request: Request) -> Caller:
        service = service_of(request)
        known = await identify(request, service)
        rates_of(request).take(known.who.name)
        crowd_of(request).known(request.scope, known.who.name)
        if not self._is_about_a_run:
            await service.guard.check(known.who, self.operation)
        return known


def caller(operation: Operation) -> Any:
    """For the annotation of a parameter: `who: Annotated[Caller, caller(Operation.X)]`."""
    return Depends(ForOperation(operation))


def is_about_a_run(operation: Operation) -> bool:
    """Is there more to know than who it is?"""
    reaches = frozenset(PERMISSIONS[operation].values())
    bond = BONDS.get(operation)
    return bool(reaches & {Reach.OWN, Reach.MADE}) or bond in (Bond.REQUESTER, Bond.INVOLVED)


async def identify(request: Request, service: Service) -> Caller:
    """`ApiError` 401 for whoever cannot prove who they are."""
    given = request.headers.getlist("authorization")
    if given:
        key = given[0][len(_BEARER) :].strip() if given[0].lower().startswith(_BEARER) else ""
        is_one = len(given) == 1 and 0 < len(key) <= _MAX_CREDENTIAL_CHARS
        return await _with_key(request, service, key if is_one else "")
    token = request.cookies.get(cookie_name(request), "")[:_MAX_CREDENTIAL_CHARS]
    signed_in = await service.sessions.authenticate(token) if token else None
    if signed_in is None:
        raise _refused(request)
    if request.method not in SAFE_METHODS:
        check_csrf(signed_in, request.headers.get(CSRF_HEADER, ""))

    async def again() -> Principal | None:
        found = await service.sessions.authenticate(token)
        return None if found is None else found.principal

    return Caller(signed_in.principal, signed_in, again)


def check_csrf(signed_in: SignedIn, given: str) -> None:
    if not is_csrf(signed_in.csrf, given):
        raise ApiError(
            403, "csrf", f"The token against forged requests ({CSRF_HEADER}) is missing or wrong. Nothing was done."
        )


def is_secure(request: Request) -> bool:
    """Does the browser speak TLS, to us or to a proxy in front of us?"""
    return request.url.scheme == "https" or service_of(request).public_url.startswith("https://")


def cookie_name(request: Request) -> str:
    """Over TLS the browser itself holds the cookie to this host and to https."""
    return "__Host-interlock" if is_secure(request) else "interlock_session"


async def _with_key(request: Request, service: Service, key: str) -> Caller:
    who = await service.keys.authenticate(key) if key else None
    if who is None:
        raise _refused(request)
    return Caller(who, None, lambda: service.keys.authenticate(key))


def _refused(request: Request) -> ApiError:
    """Who guesses is slowed down by address: there is no name yet."""
    address = request.client.host if request.client else ""
    rates_of(request).take(f"address:{address}")
    return _UNKNOWN
