"""Kill switches of agents: one agent, or all of them.

Switching off comes first, so that no run begins meanwhile; then the runs are cancelled, or held where they are. Held
runs say why they wait, and continue when the agent is switched on.
"""

import msgspec

from ....engine.interface import Engine
from ....engine.switches import ALL_AGENTS
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, RunOwnershipData
from ..identity.principal import Principal
from ..index.rows import UNFINISHED_STATUSES, RunQuery
from ..index.run_index import RunIndex
from ..switches import Switches, check_reason
from .agent_runners import AgentRunners
from .run_service import RunService

_PAGE_SIZE = 500


class AgentSwitchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of switching an agent off or on."""

    #: Empty: all agents.
    agent: str
    is_on: bool
    #: False: it was off, or on, already.
    changed: bool
    #: How many runs were cancelled, and those that had not ended when the request did.
    cancelled: int = 0
    unfinished: tuple[str, ...] = ()


class AgentSwitches:
    """Switches agents off and on."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        switches: Switches,
        runners: AgentRunners,
        index: RunIndex,
        guard: AccessGuard,
        run_service: RunService,
        engine: Engine,
    ) -> None:
        self._switches = switches
        self._runners = runners
        self._index = index
        self._guard = guard
        self._run_service = run_service
        self._engine = engine

    async def switch_off(
        self, principal: Principal, agent: str, reason: str, *, cancel_runs: bool = True
    ) -> AgentSwitchResult:
        """Refuse new runs of an agent, and cancel its runs; without `cancel_runs` they are held. An empty name is all
        agents.
        """
        await self._check(principal, agent)
        check_reason(reason)
        changed = await self._switches.switch_off("agent", agent, by=principal.name, reason=reason)
        if not cancel_runs:
            return AgentSwitchResult(agent=agent, is_on=False, changed=changed)
        stopped = await self._run_service.cancel_all(principal, agent, reason)
        return AgentSwitchResult(
            agent=agent, is_on=False, changed=changed, cancelled=stopped.cancelled, unfinished=stopped.unfinished
        )

    async def switch_on(self, principal: Principal, agent: str, reason: str) -> AgentSwitchResult:
        """Take new runs of an agent, and continue those that were held."""
        await self._check(principal, agent)
        changed = await self._switches.switch_on("agent", agent, by=principal.name, reason=reason)
        await self._wake_held_runs(agent)
        return AgentSwitchResult(agent=agent, is_on=True, changed=changed)

    async def _check(self, principal: Principal, agent: str) -> None:
        if agent == ALL_AGENTS:
            await self._guard.check(principal, Operation.SWITCH_ALL_AGENTS)
            return
        await self._guard.check(principal, Operation.SWITCH_AGENT, RunOwnershipData(agent=agent), agent)
        known = self._runners.by_agent
        if agent not in known and agent not in await self._switches.list("agent"):
            raise self._guard.build_unknown_agent_error(principal, Operation.SWITCH_AGENT, agent, known)

    async def _wake_held_runs(self, agent: str) -> None:
        cursor, has_more = "", True
        while has_more:
            query = RunQuery(statuses=UNFINISHED_STATUSES, agent=agent or None, limit=_PAGE_SIZE, cursor=cursor)
            page = await self._index.list_runs(query)
            held = await self._engine.waiting_reasons([row.run_id for row in page.rows])
            await self._engine.wake(list(held))
            cursor, has_more = page.next_cursor, bool(page.next_cursor)
