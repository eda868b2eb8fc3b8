"""Passkeys: register one, remove one, and sign in with one."""

from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.errors import ConflictError, not_found_error
from ...core.identity.passkeys import CHALLENGE_SECONDS, Passkey
from ...core.identity.permissions import Operation
from ...core.identity.principal import IdentityProblem
from ...core.service import Service
from ..caller import Call, PublicCall, get_address, is_https
from ..errors import ApiError, FieldProblem, invalid_request
from ..responses import build_response, json_response
from ..routing import Routes
from ..schemas.accounts import MeResponse, PasskeyList, PasskeyResponse, RemovedPasskeys
from ..schemas.requests import BeginPasskeyRequest, CreatePasskeyRequest, PasskeySignInRequest
from .session import check_attempt, check_own_password, get_account_name, set_session_cookie

route = Routes("session")

_COOKIE = "interlock_passkey"
_WRONG_PASSKEY = ApiError(401, "wrong_passkey", "This passkey was not accepted. Sign in with your password.")


@route("GET", "/me/passkeys", Operation.OWN_ACCOUNT, PasskeyList)
async def list_passkeys(call: Call) -> dict[str, Any]:
    """List your passkeys."""
    return {"passkeys": await call.service.passkeys.list(get_account_name(call))}


@route("POST", "/me/passkeys/options", Operation.OWN_ACCOUNT)
async def begin_passkey(call: Call, body: BeginPasskeyRequest) -> Response:
    """Return the options for `navigator.credentials.create`. Your password is needed."""
    _check_available(call.service)
    account = await call.service.accounts.get(get_account_name(call))
    if call.session is None or account is None or not account.has_password:
        raise ConflictError("no_passkeys", "Only accounts with a password here have passkeys, and in a browser.")
    await check_own_password(call, body.password, "password")
    return json_response(await call.service.passkeys.begin_registration(account.name, call.session.session_id))


@route("POST", "/me/passkeys", Operation.OWN_ACCOUNT, PasskeyResponse, status=201)
async def create_passkey(call: Call, body: CreatePasskeyRequest) -> Passkey:
    """Add a passkey, with the answer of `navigator.credentials.create`."""
    _check_available(call.service)
    session_id = "" if call.session is None else call.session.session_id
    created = await call.service.passkeys.register(get_account_name(call), session_id, body.name, body.credential)
    if isinstance(created, IdentityProblem):
        raise invalid_request(FieldProblem(created.field, created.problem))
    return created


@route("DELETE", "/me/passkeys/{name}", Operation.OWN_ACCOUNT, status=204)
async def remove_passkey(call: Call, name: str) -> None:
    """Remove the passkey with this `credential_id`."""
    if not await call.service.passkeys.remove(get_account_name(call), name, by=call.principal.name):
        raise not_found_error("passkey", name)


@route("DELETE", "/accounts/{name}/passkeys", Operation.MANAGE_ACCOUNTS, RemovedPasskeys)
async def remove_passkeys(call: Call, name: str) -> RemovedPasskeys:
    """Remove all passkeys of an account."""
    if await call.service.accounts.get(name) is None:
        raise not_found_error("account", name)
    return RemovedPasskeys(removed=await call.service.passkeys.remove_all(name, by=call.principal.name))


@route("POST", "/session/passkey/options", None)
async def begin_passkey_sign_in(call: PublicCall) -> Response:
    """Return the options for `navigator.credentials.get`. The response sets a cookie that the sign-in needs."""
    _check_available(call.service)
    browser = token_urlsafe(32)
    response = json_response(await call.service.passkeys.begin_sign_in(_to_owner(browser)))
    secure = is_https(call.request)
    response.set_cookie(
        _COOKIE, browser, max_age=CHALLENGE_SECONDS, path="/v1/session", httponly=True, samesite="strict", secure=secure
    )
    return response


@route("POST", "/session/passkey", None, MeResponse, status=201)
async def sign_in_with_passkey(call: PublicCall, body: PasskeySignInRequest) -> Response:
    """Sign in with a passkey: the answer of `navigator.credentials.get`. The response sets the cookie of a session."""
    service, address = call.service, get_address(call.request)
    _check_available(service)
    name = await service.passkeys.find_account(body.credential)
    await check_attempt(service, name, address)
    browser = call.request.cookies.get(_COOKIE, "")
    account = await service.passkeys.authenticate(body.credential, _to_owner(browser)) if browser else ""
    detail = {"address": address, "with": "passkey"}
    new = await service.sessions.start(account, detail=detail) if account else None
    if new is None:
        by = f"user:{name}" if name else ""
        await service.audit_log.add(by, "session.started", outcome="refused", detail=detail)
        raise _WRONG_PASSKEY
    await service.login_throttle.record_success(account, address)
    found = await service.accounts.get(account)
    if found is None:
        raise _WRONG_PASSKEY
    response = json_response(build_response(MeResponse, (found.principal, new.csrf, new.ends_at)), 201)
    set_session_cookie(response, call.request, new)
    _clear_cookie(response, call.request)
    return response


def _check_available(service: Service) -> None:
    if not service.passkeys.is_available:
        raise ConflictError(
            "no_passkeys", "Passkeys need a public_url with https and a host name, or localhost. Nothing was done."
        )


def _to_owner(browser: str) -> str:
    return f"browser:{sha256(browser.encode(errors='replace')).hexdigest()}"


def _clear_cookie(response: Response, request: Request) -> None:
    response.delete_cookie(_COOKIE, path="/v1/session", httponly=True, samesite="strict", secure=is_https(request))
