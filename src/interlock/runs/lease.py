"""The lease of a run while this process drives it: the lease in the log, the open run, and the means to stop it.

Commands are delivered here from the acquisition to the release. After the release they are checked once more (see
`inbox.py`), so that none is lost in between.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..agent.session import AgentSession, ModelListener
from ..domain.commands import CancelCommand
from ..domain.errors import LogError, RunClaimedError
from ..domain.tool import CallContext
from ..storage.event_log import Lease, QueuedCommand
from .commands import take_command

if TYPE_CHECKING:
    from .runner import Runner

CANCELLED_MESSAGE = "The run was cancelled."
_TIME_EXCEEDED_MESSAGE = "The run has used its time."
#: How often a stop is repeated, in case something began meanwhile.
_STOP_RETRY_SECONDS = 0.5


class RunLease:
    """The right of this process to drive a run, with the open run and its session."""

    def __init__(self, runner: "Runner", situation: CallContext) -> None:
        self._runner = runner
        self._situation = situation
        self._lease: Lease | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: None: this process does not have the run.
        self.session: AgentSession | None = None
        self.listeners: list[ModelListener] = []

    async def acquire(self, *, force: bool = False) -> AgentSession:
        """Acquire the lease and open a session. Raise `RunClaimedError` when another process, or another handle in this
        one, has it.
        """
        runner, run_id = self._runner, self._situation.run_id
        runner.check_open()
        if run_id in runner.poller:
            raise RunClaimedError(f"{run_id} is already running in this process. Nothing was started.")
        self._lease = lease = await runner.log.acquire(run_id, force=force)
        try:
            self.session = session = await runner.open_session(self._situation, lease)
            session.listeners = self.listeners
            session.releases_with_append = True
            await runner.poller.subscribe(run_id, self._take_command)
        except BaseException:
            await self.release()
            raise
        return session

    async def open_new(self) -> AgentSession | None:
        """Open a session of a run that is not in the log yet: its lease begins with its first append, which fails when
        the log has the run. Return None when the log cannot do that.
        """
        runner, run_id = self._runner, self._situation.run_id
        runner.check_open()
        if run_id in runner.poller or not hasattr(runner.log, "append_and_acquire"):
            return None
        runner.poller.subscribe_new(run_id, self._take_command)
        try:
            run = await runner.app.open(self._situation, is_new=True)
        except BaseException:
            runner.poller.unsubscribe(run_id)
            raise
        run.recorder.acquires_lease = True
        self.session = session = runner.build_session(run)
        session.listeners = self.listeners
        session.releases_with_append = True
        return session

    async def keep_new(self) -> None:
        """Keep the lease that began with the first append, if it did, however that was waited for."""
        session = self.session
        if session is not None:
            await session.run.recorder.settle_writes()
            self._lease = session.run.recorder.lease
            if self._lease is None:
                self.session = None
                self._runner.poller.unsubscribe(self._situation.run_id)

    async def release(self) -> bool:
        """Release the lease. Return True if queued commands were applied."""
        self._stop_timer()
        try:
            if self.session is not None:
                await self.session.run.settle()  # how cancelled calls ended is recorded while the run is still ours
                with suppress(LogError):
                    await self.session.run.recorder.ack_claims()
        finally:
            written = await self._release_lease()
        return written

    async def _release_lease(self) -> bool:
        lease, session = self._lease, self.session
        self._lease = self.session = None
        if lease is None:
            return False
        self._stop_timer()
        self._runner.poller.unsubscribe(lease.run_id)
        has_commands = None
        if session is not None:
            try:
                has_commands = await session.run.recorder.release_with_append()
            except BaseException:  # nothing is released twice
                await self._runner.log.release(lease)
                raise
        if has_commands is None:
            has_commands = await self._runner.log.release(lease)
        return has_commands and await self._runner.inbox.apply_queued(lease.run_id)

    def enforce_time_budget(self, session: AgentSession) -> None:
        """Stop a step that takes longer than what is left of the time budget."""
        limit = session.budgets.max_seconds
        if limit is None:
            return
        left = limit - session.active_seconds
        if left <= 0:
            self.stop(session, _TIME_EXCEEDED_MESSAGE)
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self.enforce_time_budget, session)

    def stop(self, session: AgentSession, reason: str) -> None:
        """Stop the session, repeatedly until it ends: it may be about to begin something."""
        self._stop_timer()
        session.stop_work(reason)
        self._timer = asyncio.get_running_loop().call_later(_STOP_RETRY_SECONDS, self.stop, session, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _take_command(self, command: QueuedCommand) -> bool:
        """Apply an answer or a cancellation of another process. Return False when the lease was lost: the command is
        for the new owner.
        """
        session = self.session
        if session is None:
            return False

        async def end(command: CancelCommand) -> bool:
            self._cancel(session, command)
            return False  # it stays queued until the end is recorded, in case this process dies before

        return await take_command(command, self._runner.app, session.run, end)

    def _cancel(self, session: AgentSession, command: CancelCommand) -> None:
        """Cancel now, unless it is ending already: the command is delivered again until then."""
        if session.cancel_command is None:
            session.cancel_command = command
        if not session.is_stopped:
            self.stop(session, CANCELLED_MESSAGE)
