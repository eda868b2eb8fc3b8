"""Continue one run: find its agent, open it, drive it until it is over or waits, and say when to look again."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from ..domain.errors import (
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
from ..domain.rendering import neutralize, truncate
from ..history.fold import load_run
from ..rendering.text import describe_error
from ..runs.children import read_run_started
from ..runs.handle import RunHandle
from ..runs.inbox import PARENT_ENDED
from ..runs.runner import Runner
from .interface import NextLook

logger = logging.getLogger("interlock.worker")

_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 30.0
#: How often a run is tried again after an error that may not pass.
_MAX_ATTEMPTS = 8
_MAX_REASON_CHARS = 2_000
#: How many runs are opened at once: each is read from the log.
_MAX_CONCURRENT_OPENS = 50


class RunRules:
    """What a process knows about runs beside their events. By default nothing, as for one of many workers."""

    #: Nothing about the run: another try, or another worker, may succeed.
    passing_errors: tuple[type[Exception], ...] = (LogError, ModelError, WorkspaceMismatchError, ConfigurationError)

    async def accepts(self, run_id: str) -> bool:
        """Return False if this process must not touch the run."""
        return True

    async def can_resume(self, runner: Runner, run_id: str) -> bool:
        """Return False if there is nothing to do in the run, so that it need not be opened."""
        return True

    async def is_damaged(self, run_id: str) -> bool:
        """Return True if the events of a run that cannot be opened are damaged. Then it is left alone, else it
        fails.
        """
        return True

    async def find_hold(self, agent: str) -> str:
        """Return why runs of the agent must not continue now; empty when they may."""
        return ""

    async def handle_unknown_agent(self, run_id: str, agent: str) -> None:
        """Raise the error for a run of an agent that is not here, or return to leave it alone."""
        raise UnknownAgentError(f"Waits for a worker with the agent {agent!r}.")


class UnknownAgentError(ConfigurationError):
    """The agent of a run is not here. Another worker may have it."""


class RunAdvancer:
    """Continues runs of the agents of this process.

    A run that cannot continue now, because storage, the network or this worker's configuration is the problem, is tried
    again with growing delays. One that can never continue ends as failed, with an event that says why. One whose
    events are damaged is left alone.
    """

    def __init__(self, runners: Mapping[str, Runner], rules: RunRules | None = None) -> None:
        """`runners` are those of the agents, by name, on one log."""
        self._runners = runners
        self._rules = rules or RunRules()
        self._any_runner = next(iter(runners.values()))
        self._log = self._any_runner.log
        self._open_limit = asyncio.Semaphore(_MAX_CONCURRENT_OPENS)
        self._failures: dict[str, int] = {}
        self._is_stopping = False

    def pause(self) -> None:
        """Stop after the running calls, and leave the runs for other processes."""
        self._is_stopping = True
        for runner in self._runners.values():
            for handle in runner.list_live_handles():
                handle.pause()

    async def advance(self, run_id: str) -> NextLook | None:
        """Continue a run until it is over (None), or until it waits."""
        try:
            look = await self._drive(run_id)
        except (RunClaimedError, LogFencedError) as error:
            logger.info("%s is left to another process: %s", run_id, error)
            return NextLook(is_left=True)
        except Exception as error:  # whatever it is, other runs continue
            return await self._handle_failure(run_id, error)
        self._failures.pop(run_id, None)
        return look

    async def _drive(self, run_id: str) -> NextLook | None:
        handle = self._find_live_handle(run_id)
        if handle is None:
            opened = await self._open(run_id)
            if not isinstance(opened, RunHandle):
                return opened
            handle = opened
        if self._is_stopping:
            handle.pause()
        result = await handle.result()
        if result.state.is_over:
            return None
        if handle.is_pause_requested and not self._is_stopping:
            begun = await read_run_started(self._log, run_id)
            hold = None if begun is None else await self._hold(begun.agent)
            return hold or NextLook(is_left=True)
        is_waiting = bool(result.questions) or not self._is_stopping
        times = [question.expires_at for question in result.questions if question.expires_at]
        return NextLook(at=min(times, default=0), seq=handle.stopped_seq, is_left=not is_waiting)

    def _find_live_handle(self, run_id: str) -> RunHandle | None:
        for runner in self._runners.values():
            if (handle := runner.live_handles.get(run_id)) is not None:
                return handle
        return None

    async def _open(self, run_id: str) -> RunHandle | NextLook:
        if not await self._rules.accepts(run_id):
            return NextLook()
        begun = await read_run_started(self._log, run_id)
        if begun is None:
            raise ConfigurationError(f"{run_id} is a run without events.")
        if begun.parent_run_id:
            return await self._leave_to_parent(run_id, begun.parent_run_id)
        runner = self._runners.get(begun.agent)
        if runner is None:
            await self._rules.handle_unknown_agent(run_id, begun.agent)
            return NextLook()
        if (hold := await self._hold(begun.agent)) is not None:
            return hold
        async with self._open_limit:
            if not await self._rules.can_resume(runner, run_id):
                return NextLook()
            return await runner.open_started(run_id, begun)

    async def _hold(self, agent: str) -> NextLook | None:
        """Return when to look again at a run of an agent that is switched off, and why it waits."""
        reason = await self._rules.find_hold(agent)
        return NextLook(retry_seconds=_MAX_RETRY_SECONDS, reason=reason) if reason else None

    async def _leave_to_parent(self, run_id: str, parent_run_id: str) -> NextLook:
        """Leave a child run to its parent, which drives it. When the parent is over, cancel the child run."""
        if (await load_run(self._log, parent_run_id)).ledger.is_over:
            with suppress(RunEndedError, DecisionConflictError):
                await self._any_runner.inbox.cancel(run_id, PARENT_ENDED)
            return NextLook()
        return NextLook(driver=parent_run_id)

    async def _handle_failure(self, run_id: str, error: Exception) -> NextLook | None:
        message = _describe(error)
        count = self._failures[run_id] = self._failures.get(run_id, 0) + 1
        try:
            if isinstance(error, (LogUnreadableError, IllegalTransitionError)):
                if await self._rules.is_damaged(run_id):
                    logger.error("%s is damaged, and left alone: %s", run_id, message)
                    return NextLook()
            elif self._is_passing(error, count):
                return self._retry(run_id, error, count)
            return await self._fail(run_id, message)
        except Exception as failure:
            logger.warning("%s could not be ended: %s", run_id, describe_error(failure))
            return self._retry(run_id, error, count)

    def _is_passing(self, error: Exception, count: int) -> bool:
        is_full_disk = isinstance(error, ArtifactError) and isinstance(error.__cause__, OSError)
        if is_full_disk or isinstance(error, self._rules.passing_errors):
            return True
        return isinstance(error, (ArtifactError, OSError)) and count < _MAX_ATTEMPTS

    def _retry(self, run_id: str, error: Exception, count: int) -> NextLook:
        if count == 1 and not isinstance(error, LogError):  # for the log there is one report for all runs
            logger.warning("%s could not continue, and is tried again: %s", run_id, _describe(error))
        seconds = min(_MAX_RETRY_SECONDS, _MIN_RETRY_SECONDS * 2 ** (count - 1))
        return NextLook(retry_seconds=seconds, reason=_describe_wait(error))

    async def _fail(self, run_id: str, message: str) -> NextLook | None:
        """End a run that can never continue."""
        logger.warning("%s cannot continue, and fails: %s", run_id, message)
        begun = await read_run_started(self._log, run_id)
        runner = self._any_runner if begun is None else self._runners.get(begun.agent, self._any_runner)
        try:
            is_recorded = await runner.inbox.fail(run_id, f"The run cannot continue: {message}")
        except RunEndedError:
            is_recorded = True
        self._failures.pop(run_id, None)
        return None if is_recorded else NextLook(is_left=True)


def _describe_wait(error: Exception) -> str:
    """Return what a run waits for after an error that may pass."""
    if isinstance(error, UnknownAgentError):
        return _describe(error)
    if isinstance(error, WorkspaceMismatchError) and error.workspace:
        return truncate(neutralize(f"Waits for a worker with the folder {error.workspace!r}."), _MAX_REASON_CHARS)
    return f"Waiting to try again: {_describe(error)}"


def _describe(error: Exception) -> str:
    """Return the message of an error of ours; for others the type, too."""
    text = str(error) if isinstance(error, InterlockError) else describe_error(error)
    return truncate(neutralize(text), _MAX_REASON_CHARS)
