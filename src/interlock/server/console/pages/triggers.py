"""Schedules and webhooks: what they started last, what they refused, and whether they are paused."""

from starlette.responses import Response

from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ..session import Pages, Visit

page = Pages()


@page("GET", "/triggers")
async def show(visit: Visit) -> Response:
    """Show the schedules and webhooks of the visitor's agents."""
    service, principal = visit.service.trigger_service, visit.principal
    schedules, webhooks = await service.list_schedules(principal), await service.list_webhooks(principal)
    agents = {each.agent for each in (*schedules, *webhooks)}
    return await visit.render(
        "triggers.html",
        schedules=schedules,
        webhooks=webhooks,
        public_url=visit.service.public_url,
        pausable={
            agent for agent in agents if is_allowed(principal, Operation.PAUSE_TRIGGER, RunOwnershipData(agent=agent))
        },
    )
