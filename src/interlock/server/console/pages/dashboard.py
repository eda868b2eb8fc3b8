"""The dashboard: what happens now, figures of a period, longest waiting questions, recent activity."""

from typing import NamedTuple
from urllib.parse import urlencode
from zlib import crc32

import msgspec
from starlette.responses import Response

from ....domain.errors import LogError
from ....rendering.run_states import RUN_STATES, StateTone
from ...core.identity.permissions import Operation, get_visibility, is_allowed
from ...core.identity.principal import Principal, Role
from ...core.index.rows import ActionQuery
from ...core.index.statistics import Statistics, StatisticsPeriod
from ...core.service import Service
from ..session import Pages, Visit
from ..views import charts
from ..views.budgets import BudgetPanel, make_panel

_MAX_OLDEST = 6
_MAX_RECENT = 10
_PERIODS = (
    (StatisticsPeriod.DAY, "24 hours"),
    (StatisticsPeriod.WEEK, "7 days"),
    (StatisticsPeriod.MONTH, "30 days"),
)
_USAGE_DAYS = {StatisticsPeriod.DAY: 7, StatisticsPeriod.WEEK: 7, StatisticsPeriod.MONTH: 30}
_POLICY_ROLES = frozenset((Role.OPERATOR, Role.AUDITOR, Role.ADMIN))


class Tile(NamedTuple):
    """A number with its name, and where it leads."""

    label: str
    number: str
    more: str
    tone: StateTone
    icon: str
    href: str


page = Pages()


@page("GET", "/")
async def show(visit: Visit, period: StatisticsPeriod = StatisticsPeriod.DAY) -> Response:
    """Render the dashboard."""
    principal, service, seen = visit.principal, visit.service, get_visibility(visit.principal)
    queries = service.run_queries
    statistics = await queries.get_statistics(principal, period, service.now())
    can_read_policy = not _POLICY_ROLES.isdisjoint(principal.roles)
    oldest = ActionQuery(statuses=frozenset(("PENDING",)), limit=_MAX_OLDEST)
    unfinished = await service.index.count_unfinished_runs(seen.agents, seen.person)
    return await visit.render(
        "dashboard.html",
        periods=_PERIODS,
        statistics=statistics,
        version=crc32(msgspec.json.encode(statistics)),
        tiles=list_tiles(unfinished, statistics),
        outcomes=charts.draw_outcomes(statistics),
        waits=charts.draw_waits(statistics),
        usage=charts.draw_usage(statistics, _USAGE_DAYS[period]),
        ages=charts.list_ages(statistics.question_ages),
        rules=charts.list_rules(statistics.rules, can_read_policy),
        errors=charts.list_counts(statistics.errors, "failed"),
        refusals=charts.list_counts(statistics.refusals, "rejected"),
        can_read_policy=can_read_policy,
        recent=await service.index.list_activity(_MAX_RECENT, seen.agents, seen.person),
        oldest=(await queries.list_questions(principal, oldest)).rows,
        health=await _load_health(service, principal),
        budgets=await _load_budgets(service, principal),
    )


def list_tiles(unfinished: dict[str, int], statistics: Statistics, agent: str = "") -> list[Tile]:
    """Return what happens now, and how runs of the period ended: of all agents, or of one."""
    path = f"/console/runs?{urlencode({'agent': agent})}&status=" if agent else "/console/runs?status="
    now = [
        Tile(label, f"{unfinished[status]:,}", "now", shown.tone, shown.icon, f"{path}{status}")
        for status, label in (("RUNNING", "Running"), ("PAUSED_APPROVAL", "Waiting"), ("PAUSED_CONSENT", "Consent"))
        for shown in (RUN_STATES[status.lower()],)
    ]
    since = dict(_PERIODS)[statistics.period]
    return [
        *now,
        *(
            Tile(
                shown.label,
                f"{statistics.count_outcome(name):,}",
                f"in {since}",
                shown.tone,
                shown.icon,
                f"{path}{name}",
            )
            for name in ("completed", "rejected", "failed")
            for shown in (RUN_STATES[name],)
        ),
    ]


async def _load_budgets(service: Service, principal: Principal) -> BudgetPanel:
    """Return the budgets. A ledger that cannot be read is shown as that: the rest of the page says more."""
    try:
        return make_panel(await service.budgets.list_budgets(principal, service.now()))
    except LogError as error:
        return BudgetPanel([], [], str(error))


async def _load_health(service: Service, principal: Principal) -> list[tuple[str, bool]]:
    """Return lines about the state of the server, each with whether it is healthy."""
    problems = await service.find_readiness_problems()
    lines = [(words, False) for words in problems] or [("Server ready", True)]
    live = len(service.runners.list_live_handles())
    lines.append((f"{live} active run{'s' if live != 1 else ''}", True))
    if is_allowed(principal, Operation.READ_FORWARDERS):
        lines += [
            (f"{status.name}: {status.pending_count:,} events behind, {status.failures} failures", False)
            if status.last_error
            else (
                f"{status.name}: up to date"
                if not status.pending_count
                else f"{status.name}: {status.pending_count:,} to go",
                True,
            )
            for status in await service.forwarders.list_statuses()
        ]
    return lines
