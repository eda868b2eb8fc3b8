"""The page of notices: what reaches the person who is signed in; and for those who may see it, the state of every
channel, dead letters and deliveries. Tests and retries are forms that work without scripts.
"""

from typing import Annotated

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ...core.errors import ConflictError
from ...core.identity.permissions import Operation, is_allowed
from ..session import Pages, Visit

_PAGE_ROWS = 50
_MAX_DEAD = 200
_MAX_NUMBER = 2**53 - 1
_CHANNEL_STATES = {"ok": ("Working", "success", "check"), "failing": ("Failing", "danger", "warning")}
_STATES = {
    "waiting": ("Waiting", "active", "clock"),
    "sending": ("Sending", "active", "running"),
    "sent": ("Sent", "success", "check"),
    "withdrawn": ("Withdrawn", "neutral", "stop"),
    "dead": ("Dead letter", "danger", "cross"),
}
_KINDS = {
    "asked": "Question",
    "escalated": "Escalation",
    "answered": "Answer",
    "escalation_answered": "Answer to escalation",
}
_SAID = {"retried": "It is sent again.", "tested": "The channel took the test notice."}

_Number = Annotated[int, Meta(ge=0, le=_MAX_NUMBER)]

page = Pages()


@page("GET", "/notices")
async def show(visit: Visit, said: str = "", before: _Number = 0) -> Response:
    """Render one's own notices, and the channels."""
    return await _render(visit, said=_SAID.get(said, ""), before=before)


@page("POST", "/notices/channels/{name}/test")
async def test(visit: Visit, name: Annotated[str, Meta(max_length=64)]) -> Response:
    """Send a test notice. Show what went wrong."""
    _, problem = await visit.service.notices.test(visit.principal, name)
    if problem:
        return await _render(visit, trouble=f"{name} did not take the test notice: {problem}")
    return RedirectResponse("/console/notices?said=tested", 303)


@page("POST", "/notices/{number}/retry")
async def retry(visit: Visit, number: _Number) -> Response:
    """Send a dead letter again."""
    try:
        await visit.service.notices.retry(visit.principal, number)
    except ConflictError as error:
        return await _render(visit, trouble=str(error), status=409)
    return RedirectResponse("/console/notices?said=retried", 303)


async def _render(visit: Visit, *, said: str = "", trouble: str = "", before: int = 0, status: int = 200) -> Response:
    notices, principal = visit.service.notices, visit.principal
    can_read = is_allowed(principal, Operation.READ_NOTICES)
    recent = (
        await notices.list_deliveries(principal, channel="", state="", before=before, limit=_PAGE_ROWS)
        if can_read
        else []
    )
    return await visit.render(
        "notices.html",
        status=status,
        own=await notices.preferences.get(principal),
        can_read=can_read,
        can_manage=is_allowed(principal, Operation.MANAGE_NOTICES),
        channels=await notices.list_channels(principal) if can_read else [],
        dead=await notices.list_deliveries(principal, channel="", state="dead", before=0, limit=_MAX_DEAD)
        if can_read
        else [],
        recent=recent,
        next_before=recent[-1].number if len(recent) == _PAGE_ROWS else 0,
        channel_states=_CHANNEL_STATES,
        states=_STATES,
        kinds=_KINDS,
        said=said,
        trouble=trouble,
    )
