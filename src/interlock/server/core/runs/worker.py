"""The worker that drives the server's runs: those left behind by a process, those that were answered, those whose
questions expired.

A run that cannot continue now, because storage or the network fails, is tried again with growing delays, and
`waiting_reasons` says why it waits. One that can never continue ends as failed, with an event that says why. One whose
events are damaged is left alone.

A waiting run costs only rows: an answer wakes it, from any process, because every event passes the index. At most one
task drives a run; a wake-up meanwhile makes it check again, and a check that finds nothing writes nothing. A child run
is driven by its parent, so the parent is woken. Only runs created through a server are touched: `created_by` says so.
Leases decide between several servers; what one of them left behind when it died is found by the others.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from time import time_ns

from ....domain.errors import (
    ArtifactError,
    ConfigurationError,
    DecisionConflictError,
    IllegalTransitionError,
    InterlockError,
    LogError,
    LogFencedError,
    LogUnreadableError,
    ModelError,
    RunClaimedError,
    RunEndedError,
    WorkspaceMismatchError,
)
from ....domain.event import (
    TERMINAL_EVENTS,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
    RunPaused,
    decode_event,
)
from ....domain.rendering import neutralize, truncate
from ....domain.state.ledger import Ledger
from ....domain.state.lifecycle import ActionState, CallState
from ....history.fold import load_run
from ....rendering.text import describe_error
from ....runs.fork import is_unopened_fork
from ....runs.handle import RunHandle
from ....runs.inbox import PARENT_ENDED
from ..errors import StorageError
from ..index.rows import RUNNING_STATUSES, UNFINISHED_STATUSES, RunQuery, RunRow
from ..index.run_index import IndexUnavailableError, RunIndex
from ..live.hub import EventHub
from ..live.live_event import LiveEvent
from .agent_runners import AgentRunners
from .damaged_runs import DamagedRuns

_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 30.0
#: How often a run is tried again after an error that may not pass.
_MAX_ATTEMPTS = 8
_MAX_REASON_CHARS = 2_000
#: Nothing about the run: it is tried again for as long as it takes.
_STORAGE_ERRORS = (LogError, StorageError, IndexUnavailableError)

_ANSWERED_STATES = frozenset({ActionState.APPROVED, ActionState.REJECTED, ActionState.EXPIRED})


class _Reaction(Enum):
    """What follows from a failure to drive a run."""

    RETRY = "retry"
    END = "end"
    LEAVE = "leave"


class ResumeCheck:
    """Checks whether runs can be resumed."""

    def __init__(self, runners: AgentRunners, now: Callable[[], int]) -> None:
        self._runners = runners
        self._now = now

    async def can_resume(self, row: RunRow) -> bool:
        """Return True if there is work, according to the log, for an agent that is served here."""
        runner = self._runners.by_agent.get(row.agent)
        if runner is None or row.is_over:
            return False
        if await self._runners.log.queued_commands(row.run_id):
            return True
        ledger = (await load_run(self._runners.log, row.run_id)).ledger
        if ledger.checks.forked_at >= 0 and await is_unopened_fork(self._runners.log, row.run_id):
            return False
        return self._has_unapplied_answer(ledger) or await runner.readiness.can_resume(ledger)

    async def is_resume_candidate(self, row: RunRow) -> bool:
        """Return False where it surely cannot be resumed: a cheap check for many runs."""
        if not row.open_questions:
            return True
        log = self._runners.log
        if await log.queued_commands(row.run_id):
            return True
        with suppress(LogUnreadableError, IllegalTransitionError):
            last = await log.read(row.run_id, row.last_seq - 1, 1)
            return not (last and isinstance(decode_event(last[0]).fact, RunPaused))
        return False

    def _has_unapplied_answer(self, ledger: Ledger) -> bool:
        """Return True if a question was answered or expired and nothing followed from it yet."""
        for action in ledger.actions.values():
            call, question = ledger.calls.get(action.question.call_id), action.question
            is_expired = action.is_open and 0 < question.expires_at <= self._now()
            is_unobserved = call is not None and call.state is not CallState.OBSERVED
            if is_unobserved and (is_expired or action.state in _ANSWERED_STATES):
                return True
        return False


logger = logging.getLogger("interlock.server")

#: An expiry is recorded by the owner of the run, so no notification is needed.
_ANSWER_EVENTS = (ApprovalGranted, ApprovalRejected, InputProvided, InputRefused, ConsentGranted, ConsentRefused)
_PAGE_SIZE = 500
#: How many runs are taken up at once: each is read from the log.
_MAX_CONCURRENT_OPENS = 50
#: Answering holds a lease briefly; another process may hold it for long, and then drives the run itself.
_RETRY_SECONDS = (0.02, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5, 0.5, 0.5)
#: Timers are looked at this often at least, whatever the clock does; and when a question is late that cannot be
#: expired here.
_POLL_SECONDS = 5.0
_EXPIRED_POLL_SECONDS = 1.0
#: How often it is looked for runs that another server left behind.
_RECOVERY_SECONDS = 15.0


class RunWorker:
    """Drives the runs of a server."""

    def __init__(
        self,
        runners: AgentRunners,
        index: RunIndex,
        hub: EventHub,
        damaged: DamagedRuns,
        now: Callable[[], int] = time_ns,
    ) -> None:
        self._runners = runners
        self._damaged = damaged
        self._index = index
        self._hub = hub
        self._now = now
        self._resume_check = ResumeCheck(runners, now)
        self._run_tasks: dict[str, asyncio.Task[None]] = {}
        self._woken_again: set[str] = set()
        #: Runs that this process started and that have not ended; none of them is a child run.
        self._started_here: set[str] = set()
        #: A question of a child run was answered: these are opened whatever else is open.
        self._parents_of_answered: set[str] = set()
        #: Why runs wait that could not continue, by their ids.
        self.waiting_reasons: dict[str, str] = {}
        #: Set for a run that waits to be tried again: do it now.
        self._retry_now: dict[str, asyncio.Event] = {}
        #: The runs that were woken because of the time.
        self._woken_expired: set[str] = set()
        self._open_limit = asyncio.Semaphore(_MAX_CONCURRENT_OPENS)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self.is_stopping = False
        #: Whether abandoned runs were checked.
        self.recovery_done = asyncio.Event()

    async def start(self) -> None:
        """Start to follow events, recover runs and expire questions."""
        self._unsubscribe = self._hub.subscribe(self._on_events)
        self._tasks = [asyncio.create_task(work()) for work in (self._recover_periodically, self._watch_expiries)]

    async def stop(self, seconds: float) -> None:
        """Let running calls finish within `seconds`. Runs stay resumable."""
        self.is_stopping = True
        self._unsubscribe()
        for task in self._tasks:
            task.cancel()
        for handle in self._runners.list_active_handles():
            handle.pause()
        self.retry_waiting()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._run_tasks and loop.time() < deadline:
            await asyncio.wait(list(self._run_tasks.values()), timeout=deadline - loop.time())
        run_tasks = list(self._run_tasks.values())
        for task in run_tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *run_tasks, return_exceptions=True)

    def track(self, handle: RunHandle) -> None:
        """Track a run that was just started, and is no child run."""
        self._started_here.add(handle.run_id)
        if handle.run_id in self._run_tasks:
            self._woken_again.add(handle.run_id)
        else:
            self._run_tasks[handle.run_id] = asyncio.create_task(self._drive_run(handle.run_id, handle))

    def wake(self, run_id: str) -> None:
        """Check whether the run can be resumed."""
        if self.is_stopping:
            return
        if run_id in self._run_tasks:
            self._woken_again.add(run_id)
            if run_id in self._retry_now:
                self._retry_now[run_id].set()
        else:
            self._run_tasks[run_id] = asyncio.create_task(self._drive_run(run_id))

    def retry_waiting(self) -> None:
        """Try again the runs that wait because something failed."""
        for retry_now in self._retry_now.values():
            retry_now.set()

    def _on_events(self, page: Sequence[LiveEvent]) -> None:
        self._changed.set()
        for live in page:
            event = live.event
            if event is None:
                continue
            if isinstance(event.fact, TERMINAL_EVENTS):
                # The end of a child run lets its parent continue. One that was started here has none.
                if event.run_id in self._started_here:
                    self._started_here.discard(event.run_id)
                else:
                    self.wake(event.run_id)
            elif isinstance(event.fact, _ANSWER_EVENTS):
                self.wake(event.run_id)

    async def _drive_run(self, run_id: str, handle: RunHandle | None = None) -> None:
        failure_count, end_message = 0, ""
        try:
            while True:
                self._woken_again.discard(run_id)
                try:
                    await (self._end_run(run_id, end_message) if end_message else self._drive_once(run_id, handle))
                    failure_count, end_message = 0, ""
                    self.waiting_reasons.pop(run_id, None)
                except (RunClaimedError, LogFencedError) as error:
                    logger.info("%s was not resumed: %s", run_id, error)
                except Exception as error:
                    failure_count += 1
                    reaction = await self._choose_reaction(run_id, error, failure_count)
                    if reaction is _Reaction.RETRY:
                        self._woken_again.add(run_id)
                        await self._wait_to_retry(run_id, error, failure_count)
                    elif reaction is _Reaction.END and not end_message:
                        self._woken_again.add(run_id)
                        end_message = f"The run cannot continue: {_describe(error)}"
                        logger.warning("%s cannot continue, and fails: %s", run_id, _describe(error))
                handle = None
                # Nothing is awaited between this check and the end: a wake-up is seen here, or makes a new task.
                if run_id not in self._woken_again or self.is_stopping:
                    return
        finally:
            self.waiting_reasons.pop(run_id, None)
            del self._run_tasks[run_id]

    async def _choose_reaction(self, run_id: str, error: Exception, failure_count: int) -> "_Reaction":
        if isinstance(error, (LogUnreadableError, IllegalTransitionError)):
            try:
                return _Reaction.LEAVE if await self._damaged.check(run_id) else _Reaction.END
            except _STORAGE_ERRORS:
                return _Reaction.RETRY
        cause = error.__cause__
        is_full_disk = isinstance(error, ArtifactError) and isinstance(cause, OSError)
        if is_full_disk or isinstance(error, (*_STORAGE_ERRORS, ModelError, WorkspaceMismatchError)):
            return _Reaction.RETRY
        is_passing = isinstance(error, (ArtifactError, OSError)) and failure_count < _MAX_ATTEMPTS
        return _Reaction.RETRY if is_passing else _Reaction.END

    async def _wait_to_retry(self, run_id: str, error: Exception, failure_count: int) -> None:
        """Wait, longer each time, or until the run is woken or the server stops."""
        self.waiting_reasons[run_id] = f"Waiting to try again: {_describe(error)}"
        if failure_count == 1 and not isinstance(error, LogError):  # for the log there is one report for all runs
            logger.warning("%s could not continue, and is tried again: %s", run_id, _describe(error))
        self._retry_now[run_id] = retry_now = asyncio.Event()
        try:
            if not self.is_stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_MAX_RETRY_SECONDS, _MIN_RETRY_SECONDS * 2 ** (failure_count - 1))):
                        await retry_now.wait()
        finally:
            del self._retry_now[run_id]

    async def _end_run(self, run_id: str, message: str) -> None:
        row = await self._index.get_run(run_id)
        if row is not None and not row.is_over:
            with suppress(RunEndedError):
                await self._runners.get_inbox(row.agent).fail(run_id, message)

    async def _drive_once(self, run_id: str, handle: RunHandle | None) -> None:
        if handle is None:
            if problem := self._runners.log.problem:
                raise LogError(f"the event log cannot be written: {problem}")
            row = await self._index.get_run(run_id)
            if row is None or not row.created_by or row.is_damaged:
                return
            if row.parent_run_id:
                await self._wake_parent(row)
                return
            handle = await self._open_run(row)
        if handle is not None:
            if self.is_stopping:
                handle.pause()
            await handle.result()

    async def _wake_parent(self, row: RunRow) -> None:
        """Wake the parent run, which drives this one. When the parent is over, cancel it."""
        parent = await self._index.get_run(row.parent_run_id)
        if parent is None:
            return
        if not parent.is_over:
            if not row.is_over:
                self._parents_of_answered.add(parent.run_id)
            self.wake(parent.run_id)
        elif not row.is_over:
            with suppress(RunEndedError, DecisionConflictError):
                await self._runners.get_inbox(row.agent).cancel(row.run_id, PARENT_ENDED)

    async def _open_run(self, row: RunRow) -> RunHandle | None:
        """Open a run; None if there is nothing to do in it, or another process does it."""
        runner = self._runners.by_agent.get(row.agent)
        if runner is None or row.is_over:
            if not row.is_over and row.agent in self._runners.removed_agents:
                await self._check_removed_agent(row)
            return None
        has_answered_child = row.run_id in self._parents_of_answered
        self._parents_of_answered.discard(row.run_id)
        for seconds in _RETRY_SECONDS:
            async with self._open_limit:
                live = runner.live_handles.get(row.run_id)
                if live is not None:
                    return live
                if self.is_stopping or not (has_answered_child or await self._resume_check.can_resume(row)):
                    return None
                with suppress(RunClaimedError):
                    return await runner.open(row.run_id)
            await asyncio.sleep(seconds)
        if has_answered_child:
            self._parents_of_answered.add(row.run_id)
        logger.info("%s is owned by another process", row.run_id)
        return None

    async def _check_removed_agent(self, row: RunRow) -> None:
        """Raise `ConfigurationError` when the run waits for no person, so that only its agent could continue it."""
        questions = (await load_run(self._runners.log, row.run_id)).ledger.open_questions()
        if not any(not question.expires_at or self._now() < question.expires_at for question in questions):
            raise ConfigurationError(f"This server no longer serves its agent {row.agent!r}.")

    async def _recover_periodically(self) -> None:
        """Recover runs of processes that are gone. Runs that wait for people are left alone."""
        while True:
            statuses = RUNNING_STATUSES if self.recovery_done.is_set() else UNFINISHED_STATUSES
            if await self._recover_runs(statuses):
                self.recovery_done.set()
            await asyncio.sleep(_RECOVERY_SECONDS if self.recovery_done.is_set() else _EXPIRED_POLL_SECONDS)
            self._woken_expired.clear()

    async def _recover_runs(self, statuses: frozenset[str]) -> bool:
        """Wake abandoned runs. Return False if the log or the index cannot be read: it is tried again."""
        try:
            leased = await self._runners.log.lease_holders()
            cursor, has_more = "", True
            while has_more:
                page = await self._index.list_runs(
                    RunQuery(statuses=statuses, include_child_runs=True, limit=_PAGE_SIZE, cursor=cursor)
                )
                for row in page.rows:
                    if row.run_id not in leased and await self._is_abandoned(row):
                        self.wake(row.run_id)
                cursor, has_more = page.next_cursor, bool(page.next_cursor)
        except Exception as error:
            logger.warning("Runs that were left behind were not found: %s: %s", type(error).__name__, error)
            return False
        return True

    async def _is_abandoned(self, row: RunRow) -> bool:
        if not row.created_by or row.is_damaged or row.run_id in self._run_tasks:
            return False
        if not row.parent_run_id:
            return await self._resume_check.is_resume_candidate(row)
        parent = await self._index.get_run(row.parent_run_id)
        return parent is not None and (parent.is_over or bool(await self._runners.log.queued_commands(row.run_id)))

    async def _watch_expiries(self) -> None:
        """Expire questions that were not answered in time."""
        while True:
            self._changed.clear()
            wait = _POLL_SECONDS
            try:
                wait = await self._wake_expired()
            except Exception as error:  # it is looked again
                logger.warning("Questions that are late were not found: %s: %s", type(error).__name__, error)
            with suppress(TimeoutError):  # `wait_for` of Python 3.11 may lose that it was cancelled
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _wake_expired(self) -> float:
        """Wake runs with expired questions, once each. Return the seconds until the next check."""
        now, due = self._now(), await self._index.get_next_expiry()
        if not due:
            return _POLL_SECONDS
        if due > now:
            return min(_POLL_SECONDS, (due - now) / 1e9 + 0.001)
        expired = set(await self._index.list_expired_runs(now))
        for run_id in expired - self._woken_expired:
            self.wake(run_id)
        self._woken_expired = expired
        return _EXPIRED_POLL_SECONDS


def _describe(error: Exception) -> str:
    """Return the message of an error of ours; for others the type, too."""
    text = str(error) if isinstance(error, InterlockError) else describe_error(error)
    return truncate(neutralize(text), _MAX_REASON_CHARS)
