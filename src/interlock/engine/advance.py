"""Continue one run: find its agent, open it, drive it until it is over or waits, and say when to look again."""

import logging
from collections.abc import Mapping

from ..domain.errors import (
    ArtifactError,
    ConfigurationError,
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
from ..rendering.text import describe_error
from ..runs.children import read_run_started
from ..runs.result import AgentResult
from ..runs.runner import Runner
from .interface import NextLook

logger = logging.getLogger("interlock.worker")

_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 30.0
#: How often a run is tried again after an error that may not pass.
_MAX_ATTEMPTS = 8
_MAX_REASON_CHARS = 2_000
#: Nothing about the run: another try, or another worker, may succeed.
_PASSING = (LogError, ModelError, WorkspaceMismatchError, ConfigurationError)


class RunAdvancer:
    """Continues runs of the agents of this process.

    A run that cannot continue now, because storage, the network or this worker's configuration is the problem, is tried
    again with growing delays. One that can never continue ends as failed, with an event that says why. One whose
    events are damaged is left alone.
    """

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        """`runners` are those of the agents, by name, on one log."""
        self._runners = runners
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
            result = await self._drive(run_id)
        except (RunClaimedError, LogFencedError) as error:
            logger.info("%s is left to another process: %s", run_id, error)
            return NextLook(is_left=True)
        except Exception as error:  # whatever it is, other runs continue
            return await self._handle_failure(run_id, error)
        self._failures.pop(run_id, None)
        if result.state.is_over:
            return None
        is_waiting = bool(result.questions) or not self._is_stopping
        times = [question.expires_at for question in result.questions if question.expires_at]
        return NextLook(at=min(times, default=0), is_left=not is_waiting)

    async def _drive(self, run_id: str) -> AgentResult:
        runner = await self._find_runner(run_id)
        handle = await runner.open(run_id)
        if self._is_stopping:
            handle.pause()
        return await handle.result()

    async def _find_runner(self, run_id: str) -> Runner:
        log = next(iter(self._runners.values())).log
        begun = await read_run_started(log, run_id)
        runner = self._runners.get(begun.agent) if begun is not None else None
        if runner is None:
            wanted = "a run without events" if begun is None else f"the agent {begun.agent!r}"
            raise ConfigurationError(f"{run_id} is for {wanted}, and this worker has {', '.join(self._runners)}.")
        return runner

    async def _handle_failure(self, run_id: str, error: Exception) -> NextLook | None:
        message = truncate(
            neutralize(str(error) if isinstance(error, InterlockError) else describe_error(error)), _MAX_REASON_CHARS
        )
        if isinstance(error, (LogUnreadableError, IllegalTransitionError)):
            logger.error("%s is damaged, and left alone: %s", run_id, message)
            return NextLook()
        count = self._failures[run_id] = self._failures.get(run_id, 0) + 1
        is_passing = isinstance(error, _PASSING) or (
            isinstance(error, (ArtifactError, OSError)) and count < _MAX_ATTEMPTS
        )
        if not is_passing:
            try:
                return await self._fail(run_id, message)
            except Exception as failure:
                logger.warning("%s could not be ended: %s", run_id, describe_error(failure))
        logger.warning("%s could not continue, and is tried again: %s", run_id, message)
        return NextLook(retry_seconds=min(_MAX_RETRY_SECONDS, _MIN_RETRY_SECONDS * 2 ** (count - 1)))

    async def _fail(self, run_id: str, message: str) -> NextLook | None:
        """End a run that can never continue."""
        runner = await self._find_runner(run_id)
        logger.warning("%s cannot continue, and fails: %s", run_id, message)
        try:
            is_recorded = await runner.inbox.fail(run_id, f"The run cannot continue: {message}")
        except RunEndedError:
            is_recorded = True
        self._failures.pop(run_id, None)
        return None if is_recorded else NextLook(is_left=True)
