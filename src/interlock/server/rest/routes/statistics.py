"""Statistics: how runs end, how long people are waited for, what agents cost, which rules ask, what fails."""

from typing import Annotated

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.index.statistics import Statistics, StatisticsPeriod
from ..body import RequestModel
from ..caller import Call
from ..routing import Routes
from ..schemas.statistics import StatisticsResponse
from .runs import TextFilter

route = Routes("statistics")


class StatisticsFilters(RequestModel, frozen=True, kw_only=True):
    """The period, and an agent."""

    period: StatisticsPeriod = StatisticsPeriod.DAY
    agent: Annotated[TextFilter, Meta(description="Only runs of this agent.")] = None


@route("GET", "/statistics", Operation.READ_STATISTICS, StatisticsResponse)
async def get_statistics(call: Call, query: StatisticsFilters) -> Statistics:
    """Return figures of the agents that you have a role for: by hour for a day, by day for a week or a month."""
    now = call.service.now()
    return await call.service.run_queries.get_statistics(call.principal, query.period, now, query.agent)
