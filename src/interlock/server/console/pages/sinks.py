"""Audit sinks with their dead letters, and retention."""

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from ...core.audit.audit_log import MAX_PAGE
from ...core.identity.permissions import Operation, is_allowed
from ...core.retention import ACTOR
from ...core.service import Service
from ..session import Pages, Visit

PER_PAGE = 50
_MAX_REMOVALS = 10
_Position = Annotated[int, Meta(ge=0, le=2**53)]

page = Pages()


@page("GET", "/sinks")
async def show(visit: Visit, sink: str = "", after: _Position = 0) -> Response:
    """Show every sink, its state and its dead letters. `sink` and `after` are for the next page of one of them."""
    service, principal = visit.service, visit.principal
    statuses = await service.audit_service.list_forwarders(principal)
    sinks = [
        (
            status,
            await service.audit_service.list_dead_letters(
                principal, status.name, after if status.name == sink else 0, PER_PAGE
            ),
        )
        for status in statuses
    ]
    return await visit.render(
        "sinks.html",
        sinks=sinks,
        per_page=PER_PAGE,
        is_leading=service.leadership.is_leading,
        may_retry=is_allowed(principal, Operation.RETRY_DEAD_LETTERS),
        retention=service.settings.retention,
        retention_problem="" if service.retention is None else service.retention.problem,
        removals=await _list_removals(service),
    )


async def _list_removals(service: Service) -> list[Any]:
    """Return what retention did last, as the newest part of the audit log has it."""
    count, _ = await service.audit_log.read_head()
    entries = await service.audit_log.read(max(0, count - MAX_PAGE), MAX_PAGE)
    return [entry for entry in reversed(entries) if entry.by == ACTOR][:_MAX_REMOVALS]
