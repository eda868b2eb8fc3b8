"""Budgets of the served agents: what was used in the current windows."""

import msgspec

from ...domain.budget import BudgetRule, find_window
from ...storage.budgets import BudgetUsage, read_usage
from .identity.guard import AccessGuard
from .identity.permissions import Operation, RunVisibility, get_visibility
from .identity.principal import Principal
from .runs.agent_runners import AgentRunners

#: How many agents, requesters or tools are listed for each budget: those that used most.
MAX_SUBJECTS = 20
_NS = 1_000_000_000


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of some agents, and what one subject used of it in the current window."""

    usage: BudgetUsage
    #: Whose policies have the budget, as far as the principal sees them.
    agents: tuple[str, ...]


class BudgetService:
    """Reads what was used of budgets."""

    def __init__(self, runners: AgentRunners, guard: AccessGuard) -> None:
        self._runners = runners
        self._guard = guard

    async def list_budgets(self, principal: Principal, now: int) -> tuple[BudgetRow, ...]:
        """Return the budgets of the agents that the principal has a role for, the most used first.

        A budget that agents share which they do not see is listed without the names of others.
        """
        await self._guard.check(principal, Operation.READ_STATISTICS)
        seen = get_visibility(principal)
        rows: list[BudgetRow] = []
        for rule, owners in self._find_rules().items():
            agents = tuple(name for name in owners if seen.agents is None or name in seen.agents)
            if not agents:
                continue
            usages = await read_usage(self._runners.log, [rule], now, MAX_SUBJECTS)
            shown = [each for each in usages if len(agents) == len(owners) or _is_visible(each, seen)]
            rows += [BudgetRow(usage=each, agents=agents) for each in shown or [_make_unused(rule, now)]]
        return tuple(sorted(rows, key=lambda row: (-row.usage.percent, row.usage.id)))

    def _find_rules(self) -> dict[BudgetRule, list[str]]:
        """Return the budgets of all policies, each with its agents. The same budget in several policies is one."""
        found: dict[BudgetRule, list[str]] = {}
        for name, runner in sorted(self._runners.by_agent.items()):
            source = runner.app.parts.budget_source
            for rule in source.budgets if source is not None else ():
                if rule.applies_to(name):
                    found.setdefault(msgspec.structs.replace(rule, layer=""), []).append(name)
        return found


def _is_visible(usage: BudgetUsage, seen: RunVisibility) -> bool:
    """Return True if a counter names no agent and no requester that the principal does not see."""
    subject = usage.subject
    if "agent" in subject:
        return seen.agents is None or subject["agent"] in seen.agents
    return "requester" not in subject or subject["requester"] == seen.person


def _make_unused(rule: BudgetRule, now: int) -> BudgetUsage:
    start, end = find_window(rule.window, now)
    return BudgetUsage(
        id=rule.id,
        about=rule.describe(),
        subject={},
        used=0,
        limit=rule.limit,
        unit=rule.unit,
        window=rule.window,
        then=rule.then,
        began_at=start * _NS,
        resets_at=end * _NS,
    )
