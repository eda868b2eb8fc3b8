"""Authorization of operations on runs and questions: allowed, or refused and recorded.

What a principal may not see does not exist for them. What they see and may not do is refused, and the audit log says
who tried.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import Any

from ....domain.call import Question
from ....domain.suggestions import suggest_id, suggest_name
from ....storage.removal import RemovedRun, RunRemoval, describe_removed
from ....tools.files.undo import UNDO_TOOL
from ....undo import find_undone_run
from ..audit.audit_log import AuditLog
from ..errors import ForbiddenError, NotFoundError, RemovedError, not_found_error
from ..index.rows import ActionRow, RunQuery, RunRow
from ..index.run_index import RunIndex
from .permissions import (
    FourEyes,
    Operation,
    RunOwnership,
    RunOwnershipData,
    find_four_eyes_problem,
    get_visibility,
    is_allowed,
)
from .principal import Principal

REFUSAL_WINDOW_SECONDS = 60.0
MAX_REFUSAL_COUNTERS = 10_000
_REFUSAL_STEP = 10


class _RefusalCounter:
    __slots__ = ("next_recorded", "since", "times")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.next_recorded = 1


class RefusalRecorder:
    """Records refusals in the audit log, with a limit per principal."""

    def __init__(self, audit_log: AuditLog, now: Callable[[], float] = monotonic) -> None:
        self._audit_log = audit_log
        self._now = now
        self._counters: OrderedDict[tuple[str, str], _RefusalCounter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    async def record(self, by: str, action: str, target: str = "") -> None:
        """Record a refusal."""
        counter = self._get_counter(by, action)
        counter.times += 1
        if counter.times < counter.next_recorded:
            return
        counter.next_recorded *= _REFUSAL_STEP
        detail = {"times": str(counter.times), "within": f"{REFUSAL_WINDOW_SECONDS:g} s"} if counter.times > 1 else {}
        await self._audit_log.add(by, action, target, outcome="refused", detail=detail)

    def _get_counter(self, by: str, action: str) -> _RefusalCounter:
        key, now = (by, action), self._now()
        counter = self._counters.get(key)
        if counter is None or now - counter.since >= REFUSAL_WINDOW_SECONDS:
            self._counters.pop(key, None)
            if len(self._counters) >= MAX_REFUSAL_COUNTERS:
                self._counters.popitem(last=False)
            counter = self._counters[key] = _RefusalCounter(now)
        return counter


class AccessGuard:
    """Finds runs and questions, and checks permissions."""

    def __init__(self, index: RunIndex, audit_log: AuditLog, four_eyes_setting: FourEyes) -> None:
        self._index = index
        self._audit_log = audit_log
        self._refusals = RefusalRecorder(audit_log)
        self.four_eyes: FourEyes = four_eyes_setting

    async def check(
        self, principal: Principal, operation: Operation, run: RunOwnership | None = None, name: str = ""
    ) -> None:
        """Raise `ForbiddenError` unless the principal may do this."""
        if not is_allowed(principal, operation, run):
            await self._refusals.record(principal.name, operation.value, name)
            roles = f"the role {', '.join(sorted(principal.roles))}" if principal.roles else "no role"
            agent_note = f" of the agent {run.agent}" if run is not None else ""
            raise ForbiddenError(
                "not_allowed",
                f"{principal.name} has {roles} and may not do this ({operation.value}{agent_note}). Nothing was done.",
                {"operation": operation.value, "by": principal.name},
            )

    async def record_operation(
        self, principal: Principal, operation: Operation, name: str, detail: Mapping[str, str]
    ) -> None:
        """Record an operation that no run's log shows as a whole."""
        await self._audit_log.add(principal.name, operation.value, name, detail=detail)

    async def get_run(self, principal: Principal, run_id: str, operation: Operation = Operation.READ_RUN) -> RunRow:
        """Return a run. Raise `NotFoundError` if the principal must not see it, and `RemovedError` if its events were
        archived or erased.
        """
        row = await self._index.get_run(run_id)
        if row is None:
            await self._check_erased(principal, run_id)
        origin = None if row is None else await self.find_origin(row)
        if row is None or not any(
            each is not None and is_allowed(principal, Operation.READ_RUN, each) for each in (row, origin)
        ):
            raise not_found_error("run", run_id, await self._suggest_run(principal, run_id))
        if not is_allowed(principal, operation, row):
            await self.check(principal, operation, origin, run_id)
        if row.is_over and (removed := await self._find_removed(run_id)) is not None:
            raise _build_removed_error(removed)
        return row

    async def _check_erased(self, principal: Principal, run_id: str) -> None:
        """Raise `RemovedError` for an erased run, which lists forgot, unless the principal must not see it."""
        removed = await self._find_removed(run_id)
        if removed and is_allowed(principal, Operation.READ_RUN, RunOwnershipData(agent=removed.agent)):
            raise _build_removed_error(removed)

    async def _find_removed(self, run_id: str) -> RemovedRun | None:
        log = self._index.log
        return await log.find_removed_run(run_id) if isinstance(log, RunRemoval) else None

    async def find_origin(self, row: RunRow) -> RunRow:
        """Return the run whose agent decides about permissions: for an undo, the run that it undid."""
        seen: set[str] = set()
        while row.agent == UNDO_TOOL and row.run_id not in seen:
            seen.add(row.run_id)
            undone_id = await find_undone_run(self._index.log, row.run_id)
            row = (await self._index.get_run(undone_id) if undone_id else None) or row
        return row

    def build_unknown_agent_error(
        self, principal: Principal, operation: Operation, agent: str, known: Collection[str]
    ) -> NotFoundError:
        """Build the error for an agent that is not served, with a near one that the principal may use."""
        usable = [name for name in known if is_allowed(principal, operation, RunOwnershipData(agent=name))]
        return not_found_error("agent", agent, suggest_name(agent, usable))

    async def _suggest_run(self, principal: Principal, run_id: str) -> str:
        """Return a question with one of the newest visible runs, if its id is near."""
        visibility = get_visibility(principal)
        query = RunQuery(agents=visibility.agents, person=visibility.person, include_child_runs=True)
        return suggest_id(run_id, [row.run_id for row in (await self._index.list_runs(query)).rows])

    async def get_action(
        self, principal: Principal, action_id: str, operation: Operation = Operation.READ_QUESTION
    ) -> tuple[ActionRow, RunRow]:
        """Return the question, and its run."""
        action = await self._index.get_action(action_id)
        run = None if action is None else await self._index.get_run(action.run_id)
        if action is None or run is None or not is_allowed(principal, Operation.READ_RUN, run):
            raise not_found_error("action", action_id)
        if operation is not Operation.READ_QUESTION or not is_allowed(principal, operation, run):
            await self.check(principal, operation, run, action_id)
        return action, run

    async def require_second_person(
        self, principal: Principal, question: Question, run: RunOwnership, risk: Collection[str] = ()
    ) -> None:
        """Raise `ForbiddenError` where another person has to decide, according to the log and not the index.

        Args:
            risk: What a rule saved with the answer could allow beyond the call itself.
        """
        all_risk, layer, editor = {*question.risk, *risk}, question.layer, question.edited_by
        await self.require_other_person(principal, question.action_id, run, all_risk, layer=layer, edited_by=editor)

    async def require_other_person(  # noqa: PLR0913 - what it depends on
        self,
        principal: Principal,
        name: str,
        run: RunOwnership,
        risk: Collection[str],
        *,
        layer: str = "",
        edited_by: str = "",
    ) -> None:
        """Raise `ForbiddenError` where another person has to decide about something of this risk in the run."""
        problem = find_four_eyes_problem(principal, risk, layer, run, self.four_eyes, edited_by=edited_by)
        if problem:
            await self._refusals.record(principal.name, "decision.four_eyes", name)
            details = {"requester": run.requester, "created_by": run.created_by}
            raise ForbiddenError("four_eyes", problem, {**details, "edited_by": edited_by} if edited_by else details)

    async def record_refusal(
        self, principal: Principal, operation: Operation, name: str, code: str, message: str, **details: Any
    ) -> ForbiddenError:
        """Record a refusal, and return the error to raise."""
        await self._refusals.record(principal.name, operation.value, name)
        return ForbiddenError(code, message, {"operation": operation.value, "by": principal.name, **details})


def _build_removed_error(removed: RemovedRun) -> RemovedError:
    return RemovedError("run_removed", f"{describe_removed(removed)}.", {"run": removed.run_id})
