"""Keys and accounts: who has access, and with which roles. For admins; auditors may read."""

from collections.abc import Sequence
from typing import Any, TypeVar

from ...core.identity.account_rows import Account
from ...core.identity.api_keys import ApiKey, NewApiKey
from ...core.identity.permissions import Operation
from ...core.identity.principal import IdentityProblem, Role
from ..body import parse_time
from ..caller import Call
from ..errors import ApiError, FieldProblem, invalid_request
from ..routing import Routes
from ..schemas.accounts import AccountList, AccountResponse, ApiKeyList, ApiKeyResponse, NewApiKeyResponse
from ..schemas.requests import CreateAccountRequest, CreateKeyRequest, UpdateAccountRequest

route = Routes("people")
_T = TypeVar("_T")


@route("GET", "/keys", Operation.READ_KEYS, ApiKeyList)
async def list_keys(call: Call) -> dict[str, Sequence[ApiKey]]:
    """List the API keys, active ones first. Secrets are never included."""
    return {"keys": await call.service.api_keys.list()}


@route("POST", "/keys", Operation.MANAGE_KEYS, NewApiKeyResponse, status=201)
async def create_key(call: Call, body: CreateKeyRequest) -> NewApiKey:
    """Create an API key. Its secret is in this response only."""
    created = await call.service.api_keys.create(
        body.name,
        roles=map(Role, body.roles),
        agents=_to_agent_set(body.agents),
        expires_at=0 if body.expires_at is None else parse_time("expires_at", body.expires_at),
        by=call.principal.name,
    )
    return _require(created)


@route("DELETE", "/keys/{key_id}", Operation.MANAGE_KEYS, ApiKeyResponse)
async def revoke_key(call: Call, key_id: str) -> ApiKey:
    """Revoke an API key. Revoking it again is fine."""
    return _require(await call.service.api_keys.revoke(key_id, by=call.principal.name))


@route("GET", "/accounts", Operation.READ_ACCOUNTS, AccountList)
async def list_accounts(call: Call) -> dict[str, Sequence[Account]]:
    return {"accounts": await call.service.accounts.list()}


@route("POST", "/accounts", Operation.MANAGE_ACCOUNTS, AccountResponse, status=201)
async def create_account(call: Call, body: CreateAccountRequest) -> Account:
    created = await call.service.accounts.create(
        body.name,
        body.password,
        roles=map(Role, body.roles or ()),
        agents=_to_agent_set(body.agents),
        by=call.principal.name,
    )
    return _require(created)


@route("PATCH", "/accounts/{name}", Operation.MANAGE_ACCOUNTS, AccountResponse)
async def change_account(call: Call, name: str, body: UpdateAccountRequest) -> Account:
    """Change roles and agents, the password, or whether the account is disabled. Missing fields are unchanged."""
    accounts, by = call.service.accounts, call.principal.name
    account = await accounts.get(name)
    if account is None:
        raise _to_api_error(IdentityProblem("name", "there is no such account", "unknown"))
    if body.agents is not None and body.roles is None:
        raise invalid_request(FieldProblem("agents", "requires `roles`"))
    if body.roles is not None:
        account = _require(await accounts.set_roles(name, map(Role, body.roles), _to_agent_set(body.agents), by=by))
    if body.password is not None:
        account = _require(await accounts.set_password(name, body.password, by=by))
    if body.disabled is not None:
        change = accounts.disable if body.disabled else accounts.enable
        account = _require(await change(name, by=by))
    return account


def _require(result: _T | IdentityProblem) -> _T:
    if isinstance(result, IdentityProblem):
        raise _to_api_error(result)
    return result


def _to_api_error(refusal: IdentityProblem) -> ApiError:
    message = f"{refusal.field}: {refusal.problem}. Nothing was changed."
    details: dict[str, Any] = {"fields": [{"field": refusal.field, "problem": refusal.problem}]}
    match refusal.kind:
        case "invalid":
            return invalid_request(FieldProblem(refusal.field, refusal.problem))
        case "conflict":
            return ApiError(409, "conflict", message, details)
        case "unknown":
            return ApiError(404, f"unknown_{refusal.field}", message, details)


def _to_agent_set(agents: list[str] | None) -> frozenset[str] | None:
    return None if agents is None else frozenset(agents)
