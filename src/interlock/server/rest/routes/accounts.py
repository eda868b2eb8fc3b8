"""Keys and accounts: who may come in, and with what. For admins; auditors may look."""

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from ...core.identity.account_rows import Account
from ...core.identity.permissions import Operation
from ...core.identity.principal import Role
from ...core.identity.trust import Refusal
from ...core.service import Service
from ..body import body, takes
from ..caller import Caller, Served, caller
from ..encoding import answer, answers
from ..errors import ApiError, FieldProblem, invalid
from ..schemas.accounts import AccountList, AccountShape, ApiKeyList, KeyShape, NewKeyShape
from ..schemas.requests import AccountChange, AccountWish, KeyWish
from .approvals import read_time

router = APIRouter(tags=["people"])

_KeyManager = Annotated[Caller, caller(Operation.MANAGE_KEYS)]
_AccountManager = Annotated[Caller, caller(Operation.MANAGE_ACCOUNTS)]


@router.get("/keys", operation_id="listKeys", **answers(ApiKeyList))
async def list_keys(by: Annotated[Caller, caller(Operation.READ_KEYS)], service: Served) -> Response:
    """The living ones first. Their secrets are not known."""
    return answer(ApiKeyList(keys=list(map(KeyShape.of, await service.keys.list()))))


@router.post("/keys", operation_id="createKey", **answers(NewKeyShape, status=201), **takes(KeyWish))
async def create_key(by: _KeyManager, service: Served, wish: Annotated[KeyWish, body(KeyWish)]) -> Response:
    """A new key. Its secret is in this answer and nowhere else."""
    made = await service.keys.create(
        wish.name,
        roles=map(Role, wish.roles),
        agents=_agents(wish.agents),
        expires_at=0 if wish.expires_at is None else read_time("expires_at", wish.expires_at),
        by=by.who.name,
    )
    if isinstance(made, Refusal):
        raise _refused(made)
    return answer(NewKeyShape.of(made), 201)


@router.delete("/keys/{key_id}", operation_id="revokeKey", **answers(KeyShape))
async def revoke_key(key_id: str, by: _KeyManager, service: Served) -> Response:
    """From now on it opens nothing. Once more is the same."""
    revoked = await service.keys.revoke(key_id, by=by.who.name)
    if isinstance(revoked, Refusal):
        raise _refused(revoked)
    return answer(KeyShape.of(revoked))


@router.get("/accounts", operation_id="listAccounts", **answers(AccountList))
async def list_accounts(by: Annotated[Caller, caller(Operation.READ_ACCOUNTS)], service: Served) -> Response:
    return answer(AccountList(accounts=list(map(AccountShape.of, await service.accounts.list()))))


@router.post("/accounts", operation_id="createAccount", **answers(AccountShape, status=201), **takes(AccountWish))
async def create_account(
    by: _AccountManager, service: Served, wish: Annotated[AccountWish, body(AccountWish)]
) -> Response:
    made = await service.accounts.create(
        wish.name,
        wish.password,
        roles=map(Role, wish.roles or ()),
        agents=_agents(wish.agents),
        by=by.who.name,
    )
    return answer(AccountShape.of(_done(made)), 201)


@router.patch("/accounts/{name}", operation_id="changeAccount", **answers(AccountShape), **takes(AccountChange))
async def change_account(
    name: str, by: _AccountManager, service: Served, wish: Annotated[AccountChange, body(AccountChange)]
) -> Response:
    """Roles and agents, password, disabled or not. What is not named stays as it is."""
    return answer(AccountShape.of(await _changed(service, name, wish, by.who.name)))


async def _changed(service: Service, name: str, wish: AccountChange, by: str) -> Account:
    account = await service.accounts.get(name)
    if account is None:
        raise _refused(Refusal("name", "there is no such account", "unknown"))
    if wish.agents is not None and wish.roles is None:
        raise invalid(FieldProblem(field="agents", problem="go with `roles`"))
    if wish.roles is not None:
        account = _done(await service.accounts.set_roles(name, map(Role, wish.roles), _agents(wish.agents), by=by))
    if wish.password is not None:
        account = _done(await service.accounts.set_password(name, wish.password, by=by))
    if wish.disabled is not None:
        change = service.accounts.disable if wish.disabled else service.accounts.enable
        account = _done(await change(name, by=by))
    return account


def _done(came: Account | Refusal) -> Account:
    if isinstance(came, Refusal):
        raise _refused(came)
    return came


def _refused(refusal: Refusal) -> ApiError:
    message = f"{refusal.field}: {refusal.problem}. Nothing was changed."
    details: dict[str, Any] = {"fields": [{"field": refusal.field, "problem": refusal.problem}]}
    match refusal.kind:
        case "invalid":
            return invalid(FieldProblem(field=refusal.field, problem=refusal.problem))
        case "conflict":
            return ApiError(409, "conflict", message, details)
        case "unknown":
            return ApiError(404, f"unknown_{refusal.field}", message, details)


def _agents(agents: list[str] | None) -> frozenset[str] | None:
    return None if agents is None else frozenset(agents)
