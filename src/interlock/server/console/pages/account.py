"""One's own account: password, sessions, passkeys and keys."""

from starlette.responses import Response

from ...core.identity.permissions import Operation, is_allowed
from ..session import Pages, Visit
from .admin import get_key_state

page = Pages()


@page("GET", "/account")
async def show(visit: Visit) -> Response:
    """Show the visitor's own account."""
    service, principal = visit.service, visit.principal
    await service.guard.check(principal, Operation.OWN_ACCOUNT)
    name, now = principal.name.removeprefix("user:"), service.now()
    keys = await service.api_keys.list() if is_allowed(principal, Operation.READ_KEYS) else ()
    return await visit.render(
        "account.html",
        account=await service.accounts.get(name),
        sessions=await service.sessions.list_by_account(name),
        session_id=visit.session.session_id,
        keys=[
            (key, get_key_state(key.revoked_at, key.expires_at, now))
            for key in keys
            if key.created_by == principal.name
        ],
        own=await service.notices.preferences.get(principal),
        passkeys=await service.passkeys.list(name),
        has_passkeys=service.passkeys.is_available,
        may_have_keys=is_allowed(principal, Operation.MANAGE_KEYS),
    )
