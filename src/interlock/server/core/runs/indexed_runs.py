"""Which runs of a server may continue, found in its index: those that were answered, those whose questions expired, and
those that a process left behind.

A waiting run costs only rows: an answer wakes it, from any process, because every event passes the index. Only runs
created through a server are touched: `created_by` says so. Leases decide between several servers; what one of them left
behind when it died is found by the others.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from ....domain.errors import (
    ConfigurationError,
    IllegalTransitionError,
    LogError,
    LogUnreadableError,
    ModelError,
    WorkspaceMismatchError,
)
from ....domain.event import (
    TERMINAL_EVENTS,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    InputProvided,
    InputRefused,
    InputRequested,
    RunPaused,
    decode_event,
)
from ....domain.state.ledger import Ledger
from ....domain.state.lifecycle import ActionState, CallState
from ....engine.local import LocalEngine
from ....engine.switches import WorkerRules
from ....history.fold import load_run
from ....runs.children import list_open_children
from ....runs.fork import is_unopened_fork
from ....runs.runner import Runner
from ....storage.event_log import EventLog
from ..errors import StorageError
from ..index.rows import RUNNING_STATUSES, UNFINISHED_STATUSES, RunQuery, RunRow
from ..index.run_index import IndexUnavailableError, RunIndex
from ..live.hub import EventHub
from ..live.live_event import LiveEvent
from ..switches import Switches
from .agent_runners import AgentRunners
from .conversations import is_idle
from .damaged_runs import DamagedRuns

logger = logging.getLogger("interlock.server")

#: An expiry is recorded by the owner of the run, so no notification is needed.
_ANSWER_EVENTS: Collection[type] = frozenset(
    {ApprovalGranted, ApprovalRejected, InputProvided, InputRefused, ConsentGranted, ConsentRefused}
)
_QUESTION_EVENTS: Collection[type] = frozenset({ApprovalRequested, InputRequested, ConsentRequested})
_ANSWERED_STATES = frozenset({ActionState.APPROVED, ActionState.REJECTED, ActionState.EXPIRED})
_PAGE_SIZE = 500
#: Timers are looked at this often at least, whatever the clock does; and when a question is late that cannot be
#: expired here.
_POLL_SECONDS = 5.0
_EXPIRED_POLL_SECONDS = 1.0
#: How often it is looked for runs that another server left behind.
_RECOVERY_SECONDS = 15.0


class ServerRules(WorkerRules):
    """What a server knows about runs: which of them are damaged, and which agents were switched off."""

    passing_errors = (*WorkerRules.passing_errors, StorageError)

    def __init__(self, index: RunIndex, damaged: DamagedRuns, switches: Switches) -> None:
        super().__init__(switches.list_agents)
        self._index = index
        self._damaged = damaged

    async def accepts(self, run_id: str) -> bool:
        """Return False for a damaged run."""
        row = await self._index.get_run(run_id)
        return row is None or not row.is_damaged

    async def is_damaged(self, run_id: str) -> bool:
        """Check the events of a run, and remember it when they are damaged."""
        return await self._damaged.check(run_id)


class SingleServerRules(ServerRules):
    """What the only server of a log knows about its runs: it alone continues them."""

    #: Not a wrong configuration: no other process has a better one.
    passing_errors = (LogError, StorageError, IndexUnavailableError, ModelError, WorkspaceMismatchError)

    def __init__(
        self,
        runners: AgentRunners,
        index: RunIndex,
        damaged: DamagedRuns,
        switches: Switches,
        now: Callable[[], int],
    ) -> None:
        super().__init__(index, damaged, switches)
        self._runners = runners
        self._log = runners.log
        self._now = now

    async def accepts(self, run_id: str) -> bool:
        """Return False for a run that is damaged or over, or was not created through a server."""
        if problem := self._log.problem:
            raise LogError(f"the event log cannot be written: {problem}")
        row = await self._index.get_run(run_id)
        if row is None or not row.created_by or row.is_damaged:
            return False
        return not row.is_over or bool(row.parent_run_id)  # the end of a child run lets its parent continue

    async def can_resume(self, runner: Runner, run_id: str) -> bool:
        """Return True if there is work, according to the log."""
        if await self._log.queued_commands(run_id):
            return True
        ledger = (await load_run(self._log, run_id)).ledger
        if ledger.is_over or (ledger.checks.forked_at >= 0 and await is_unopened_fork(self._log, run_id)):
            return False
        return await self._has_unapplied_answer(ledger) or await runner.readiness.can_resume(ledger)

    async def handle_unknown_agent(self, run_id: str, agent: str) -> None:
        """Leave the run of another server's agent alone. Raise `ConfigurationError` when this server had the agent
        before, and the run waits for no person, so that only the agent could continue it.
        """
        if agent not in self._runners.removed_agents:
            return
        questions = (await load_run(self._log, run_id)).ledger.open_questions()
        if not any(not question.expires_at or self._now() < question.expires_at for question in questions):
            raise ConfigurationError(f"This server no longer serves its agent {agent!r}.")

    async def _has_unapplied_answer(self, ledger: Ledger) -> bool:
        """Return True if a question was answered or expired and nothing followed from it yet, in a child run too."""
        for action in ledger.actions.values():
            call, question = ledger.calls.get(action.question.call_id), action.question
            is_expired = action.is_open and 0 < question.expires_at <= self._now()
            is_unobserved = call is not None and call.state is not CallState.OBSERVED
            if is_unobserved and (is_expired or action.state in _ANSWERED_STATES):
                return True
        for run_id in list_open_children(ledger):
            child = (await load_run(self._log, run_id)).ledger
            if not child.is_over and (
                await self._log.queued_commands(run_id) or await self._has_unapplied_answer(child)
            ):
                return True
        return False


class IndexedRuns:
    """Finds the runs that the only server of a log continues."""

    def __init__(self, log: EventLog, index: RunIndex, hub: EventHub, now: Callable[[], int]) -> None:
        self._log = log
        self._index = index
        self._hub = hub
        self._now = now
        #: The runs that were woken because of the time.
        self._woken_expired: set[str] = set()
        self._asked = asyncio.Event()

    def settle(self, run_id: str, at: int) -> None:
        """Do nothing: the index has the questions, and when they expire."""

    async def watch(self, engine: LocalEngine) -> None:
        """Follow events, recover runs, and expire questions."""
        unsubscribe = self._hub.subscribe(partial(self._on_events, engine))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._recover_periodically(engine))
                tasks.create_task(self._watch_expiries(engine))
        finally:
            unsubscribe()

    def _on_events(self, engine: LocalEngine, page: Sequence[LiveEvent]) -> None:
        for live in page:
            kind = type(None if live.event is None else live.event.fact)
            if kind in _QUESTION_EVENTS:
                self._asked.set()
            elif kind in _ANSWER_EVENTS or (kind in TERMINAL_EVENTS and "." in live.entry.run_id):
                engine.look_at(live.entry.run_id)

    async def _recover_periodically(self, engine: LocalEngine) -> None:
        """Recover runs of processes that are gone. Runs that wait for people are left alone."""
        while True:
            statuses = RUNNING_STATUSES if engine.ready.is_set() else UNFINISHED_STATUSES
            if await self._offer_abandoned(engine, statuses):
                engine.ready.set()
            await asyncio.sleep(_RECOVERY_SECONDS if engine.ready.is_set() else _EXPIRED_POLL_SECONDS)
            self._woken_expired.clear()

    async def _offer_abandoned(self, engine: LocalEngine, statuses: frozenset[str]) -> bool:
        """Offer abandoned runs. Return False if the log or the index cannot be read: it is tried again."""
        try:
            leased = await self._log.lease_holders()
            cursor, has_more = "", True
            while has_more:
                page = await self._index.list_runs(
                    RunQuery(statuses=statuses, include_child_runs=True, limit=_PAGE_SIZE, cursor=cursor)
                )
                for row in page.rows:
                    if row.run_id not in leased and await self._is_abandoned(row):
                        engine.offer(row.run_id)
                cursor, has_more = page.next_cursor, bool(page.next_cursor)
        except Exception as error:
            logger.warning("Runs that were left behind were not found: %s: %s", type(error).__name__, error)
            return False
        return True

    async def _is_abandoned(self, row: RunRow) -> bool:
        """Return False where it surely cannot be resumed: a cheap check for many runs."""
        if not row.created_by or row.is_damaged:
            return False
        if row.parent_run_id:
            parent = await self._index.get_run(row.parent_run_id)
            return parent is not None and (parent.is_over or bool(await self._log.queued_commands(row.run_id)))
        if await self._log.queued_commands(row.run_id):
            return True
        if not row.open_questions:
            return not await is_idle(self._log, row)
        with suppress(LogUnreadableError, IllegalTransitionError):
            last = await self._log.read(row.run_id, row.last_seq - 1, 1)
            return not (last and isinstance(decode_event(last[0]).fact, RunPaused))
        return False

    async def _watch_expiries(self, engine: LocalEngine) -> None:
        """Expire questions that were not answered in time."""
        while True:
            self._asked.clear()
            wait = _POLL_SECONDS
            try:
                wait = await self._wake_expired(engine)
            except Exception as error:  # it is looked again
                logger.warning("Questions that are late were not found: %s: %s", type(error).__name__, error)
            with suppress(TimeoutError):  # `wait_for` of Python 3.11 may lose that it was cancelled
                async with asyncio.timeout(wait):
                    await self._asked.wait()

    async def _wake_expired(self, engine: LocalEngine) -> float:
        """Wake runs with expired questions, once each. Return the seconds until the next check."""
        now, due = self._now(), await self._index.get_next_expiry()
        if not due:
            return _POLL_SECONDS
        if due > now:
            return min(_POLL_SECONDS, (due - now) / 1e9 + 0.001)
        expired = set(await self._index.list_expired_runs(now))
        for run_id in expired - self._woken_expired:
            engine.look_at(run_id)
        self._woken_expired = expired
        return _EXPIRED_POLL_SECONDS
