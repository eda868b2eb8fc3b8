"""Accounts and keys: who may sign in, which programs have access, and their roles."""

from starlette.responses import Response

from ...core.identity.permissions import Operation, is_allowed
from ...core.identity.principal import Role
from ..session import Pages, Visit

#: The roles, with a description of each.
_ROLES = (
    (Role.OPERATOR, "sees runs, answers questions, begins and cancels runs"),
    (Role.AUDITOR, "sees everything, exports and verifies; changes nothing"),
    (Role.ADMIN, "all of it, and accounts and keys"),
)
_KEY_ROLES = ((Role.AGENT, "begins runs and follows them; never decides"), *_ROLES)

page = Pages()


@page("GET", "/admin")
async def show(visit: Visit) -> Response:
    """Render accounts and API keys."""
    service, principal = visit.service, visit.principal
    await service.guard.check(principal, Operation.READ_ACCOUNTS)
    await service.guard.check(principal, Operation.READ_KEYS)
    now = service.now()
    return await visit.render(
        "admin.html",
        accounts=await service.accounts.list(),
        keys=[(key, get_key_state(key.revoked_at, key.expires_at, now)) for key in await service.api_keys.list()],
        may_change=is_allowed(principal, Operation.MANAGE_ACCOUNTS) and is_allowed(principal, Operation.MANAGE_KEYS),
        roles=_ROLES,
        key_roles=_KEY_ROLES,
        agents=sorted(service.runners.served_agents),
    )


def get_key_state(revoked_at: int, expires_at: int, now: int) -> str:
    """Return the state of an API key: `valid`, `revoked` or `expired`."""
    if revoked_at:
        return "revoked"
    return "expired" if expires_at and expires_at <= now else "valid"
