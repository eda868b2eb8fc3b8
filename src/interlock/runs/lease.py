"""What this process has of a run while it moves it on: the claim, the run as it is open, and the means to stop it.

From the claim until it is given back, notes of others are brought here. Whoever gives the run back looks for notes once
more after that (see `desk.py`), so that none is lost in between.
"""

import asyncio
from typing import TYPE_CHECKING

from ..agent.session import AgentSession, ModelListener
from ..domain.commands import CancelCommand
from ..domain.errors import LogError, RunClaimedError, RunEndedError
from ..domain.tool import CallContext
from ..storage.event_log import Lease, QueuedCommand
from .commands import apply_command

if TYPE_CHECKING:
    from .runner import Runner

CANCELLED_MESSAGE = "The run was cancelled."
_TIME_EXCEEDED_MESSAGE = "The run has used its time."
#: What has to end is told so again after this long, should it have begun something meanwhile.
_STOP_RETRY_SECONDS = 0.5


class RunLease:
    def __init__(self, runner: "Runner", situation: CallContext) -> None:
        self._runner = runner
        self._situation = situation
        self._lease: Lease | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: None: this process does not have the run.
        self.session: AgentSession | None = None
        self.listeners: list[ModelListener] = []

    async def acquire(self, *, force: bool = False) -> AgentSession:
        """`RunClaimedError` when somebody else has it, or something else in this process."""
        runner, run_id = self._runner, self._situation.run_id
        runner.check_open()
        if run_id in runner.poller:
            raise RunClaimedError(f"{run_id} is moved on in this process already. Nothing was started.")
        self._lease = lease = await runner.log.acquire(run_id, force=force)
        try:
            self.session = session = await runner.open_session(self._situation, lease)
            session.listeners = self.listeners
            await runner.poller.subscribe(run_id, self._apply_command)
        except BaseException:
            await self.release()
            raise
        return session

    async def release(self) -> bool:
        """Was something written to the run after that?"""
        self._stop_timer()
        try:
            if self.session is not None:
                await self.session.run.settle()  # how cancelled calls ended is recorded while the run is still ours
        finally:
            written = await self._release_lease()
        return written

    async def _release_lease(self) -> bool:
        lease, self._lease, self.session = self._lease, None, None
        if lease is None:
            return False
        self._stop_timer()
        self._runner.poller.unsubscribe(lease.run_id)
        await self._runner.log.release(lease)
        return await self._runner.inbox.apply_queued(lease.run_id)

    def enforce_time_budget(self, session: AgentSession) -> None:
        """A budget of seconds also ends a step that takes longer than what is left."""
        limit = session.budgets.max_seconds
        if limit is None:
            return
        left = limit - session.active_seconds
        if left <= 0:
            self.stop(session, _TIME_EXCEEDED_MESSAGE)
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self.enforce_time_budget, session)

    def stop(self, session: AgentSession, reason: str) -> None:
        """Now, and again for as long as it goes on: it may be about to begin something."""
        self._stop_timer()
        session.stop_work(reason)
        self._timer = asyncio.get_running_loop().call_later(_STOP_RETRY_SECONDS, self.stop, session, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _apply_command(self, command: QueuedCommand) -> bool:
        """Somebody else left an answer, or wants the run to end. False when this process lost the run: the note is for
        whoever has it now."""
        session = self.session
        if session is None:
            return False

        async def end(command: CancelCommand) -> bool:
            self._cancel(session, command)
            return False  # it stays until the end is recorded, in case that this process dies before

        try:
            return await apply_command(command, self._runner.app, session.run, end)
        except RunEndedError:  # meanwhile
            return True
        except LogError:
            return False

    def _cancel(self, session: AgentSession, command: CancelCommand) -> None:
        """Now, unless it is ending already: a note is brought again until then."""
        if session.cancel_command is None:
            session.cancel_command = command
        if not session.is_stopped:
            self.stop(session, CANCELLED_MESSAGE)
