"""Keys and accounts: who has access, and with which roles. For admins; auditors may read."""

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from ...core.identity.account_rows import Account
from ...core.identity.permissions import Operation
from ...core.identity.principal import IdentityProblem, Role
from ...core.service import Service
from ..body import declare_body, json_body
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses, json_response
from ..errors import ApiError, FieldProblem, invalid_request
from ..schemas.accounts import AccountList, AccountResponse, ApiKeyList, ApiKeyResponse, NewApiKeyResponse
from ..schemas.requests import CreateAccountRequest, CreateKeyRequest, UpdateAccountRequest
from .approvals import parse_time

router = APIRouter(tags=["people"])

_KeyManager = Annotated[Caller, require_permission(Operation.MANAGE_KEYS)]
_AccountManager = Annotated[Caller, require_permission(Operation.MANAGE_ACCOUNTS)]


@router.get("/keys", operation_id="listKeys", **declare_responses(ApiKeyList))
async def list_keys(
    caller: Annotated[Caller, require_permission(Operation.READ_KEYS)], service: ServiceDep
) -> Response:
    """List the API keys, active ones first. Secrets are never included."""
    return json_response(ApiKeyList(keys=list(map(ApiKeyResponse.from_domain, await service.api_keys.list()))))


@router.post(
    "/keys",
    operation_id="createKey",
    **declare_responses(NewApiKeyResponse, status=201),
    **declare_body(CreateKeyRequest),
)
async def create_key(
    caller: _KeyManager, service: ServiceDep, body: Annotated[CreateKeyRequest, json_body(CreateKeyRequest)]
) -> Response:
    """Create an API key. Its secret is in this response only."""
    created = await service.api_keys.create(
        body.name,
        roles=map(Role, body.roles),
        agents=_to_agent_set(body.agents),
        expires_at=0 if body.expires_at is None else parse_time("expires_at", body.expires_at),
        by=caller.principal.name,
    )
    if isinstance(created, IdentityProblem):
        raise _to_api_error(created)
    return json_response(NewApiKeyResponse.from_domain(created), 201)


@router.delete("/keys/{key_id}", operation_id="revokeKey", **declare_responses(ApiKeyResponse))
async def revoke_key(key_id: str, caller: _KeyManager, service: ServiceDep) -> Response:
    """Revoke an API key. Revoking it again is fine."""
    revoked = await service.api_keys.revoke(key_id, by=caller.principal.name)
    if isinstance(revoked, IdentityProblem):
        raise _to_api_error(revoked)
    return json_response(ApiKeyResponse.from_domain(revoked))


@router.get("/accounts", operation_id="listAccounts", **declare_responses(AccountList))
async def list_accounts(
    caller: Annotated[Caller, require_permission(Operation.READ_ACCOUNTS)], service: ServiceDep
) -> Response:
    return json_response(AccountList(accounts=list(map(AccountResponse.from_domain, await service.accounts.list()))))


@router.post(
    "/accounts",
    operation_id="createAccount",
    **declare_responses(AccountResponse, status=201),
    **declare_body(CreateAccountRequest),
)
async def create_account(
    caller: _AccountManager, service: ServiceDep, body: Annotated[CreateAccountRequest, json_body(CreateAccountRequest)]
) -> Response:
    created = await service.accounts.create(
        body.name,
        body.password,
        roles=map(Role, body.roles or ()),
        agents=_to_agent_set(body.agents),
        by=caller.principal.name,
    )
    return json_response(AccountResponse.from_domain(_require_account(created)), 201)


@router.patch(
    "/accounts/{name}",
    operation_id="changeAccount",
    **declare_responses(AccountResponse),
    **declare_body(UpdateAccountRequest),
)
async def change_account(
    name: str,
    caller: _AccountManager,
    service: ServiceDep,
    body: Annotated[UpdateAccountRequest, json_body(UpdateAccountRequest)],
) -> Response:
    """Change roles and agents, the password, or whether the account is disabled. Missing fields are unchanged."""
    return json_response(AccountResponse.from_domain(await _update_account(service, name, body, caller.principal.name)))


async def _update_account(service: Service, name: str, body: UpdateAccountRequest, by: str) -> Account:
    account = await service.accounts.get(name)
    if account is None:
        raise _to_api_error(IdentityProblem("name", "there is no such account", "unknown"))
    if body.agents is not None and body.roles is None:
        raise invalid_request(FieldProblem(field="agents", problem="go with `roles`"))
    if body.roles is not None:
        account = _require_account(
            await service.accounts.set_roles(name, map(Role, body.roles), _to_agent_set(body.agents), by=by)
        )
    if body.password is not None:
        account = _require_account(await service.accounts.set_password(name, body.password, by=by))
    if body.disabled is not None:
        change = service.accounts.disable if body.disabled else service.accounts.enable
        account = _require_account(await change(name, by=by))
    return account


def _require_account(result: Account | IdentityProblem) -> Account:
    if isinstance(result, IdentityProblem):
        raise _to_api_error(result)
    return result


def _to_api_error(refusal: IdentityProblem) -> ApiError:
    message = f"{refusal.field}: {refusal.problem}. Nothing was changed."
    details: dict[str, Any] = {"fields": [{"field": refusal.field, "problem": refusal.problem}]}
    match refusal.kind:
        case "invalid":
            return invalid_request(FieldProblem(field=refusal.field, problem=refusal.problem))
        case "conflict":
            return ApiError(409, "conflict", message, details)
        case "unknown":
            return ApiError(404, f"unknown_{refusal.field}", message, details)


def _to_agent_set(agents: list[str] | None) -> frozenset[str] | None:
    return None if agents is None else frozenset(agents)
