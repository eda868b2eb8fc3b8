"""What this process has of a run while it moves it on: the claim, the run as it is open, and the means to stop it.

From the claim until it is given back, notes of others are brought here. Whoever gives the run back looks for notes once
more after that (see `desk.py`), so that none is lost in between.
"""

import asyncio
from typing import TYPE_CHECKING

from ..agent.session import Listener, Session
from ..domain.commands import CancelNote
from ..domain.errors import LogError, RunClaimedError, RunEndedError
from ..domain.tool import Situation
from ..storage.event_log import Claim, Note
from .commands import take_note

if TYPE_CHECKING:
    from .runner import Runner

CANCELLED = "The run was cancelled."
_TIME_IS_USED = "The run has used its time."
#: What has to end is told so again after this long, should it have begun something meanwhile.
_AGAIN_SECONDS = 0.5


class Hold:
    def __init__(self, runner: "Runner", situation: Situation) -> None:
        self._runner = runner
        self._situation = situation
        self._claim: Claim | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: None: this process does not have the run.
        self.session: Session | None = None
        self.listeners: list[Listener] = []

    async def take(self, *, force: bool = False) -> Session:
        """`RunClaimedError` when somebody else has it, or something else in this process."""
        runner, run_id = self._runner, self._situation.run_id
        runner.check_open()
        if run_id in runner.watch:
            raise RunClaimedError(f"{run_id} is moved on in this process already. Nothing was started.")
        self._claim = claim = await runner.log.claim(run_id, force=force)
        try:
            self.session = session = await runner.session(self._situation, claim)
            session.listeners = self.listeners
            await runner.watch.watch(run_id, self._take_note)
        except BaseException:
            await self.give_back()
            raise
        return session

    async def give_back(self) -> bool:
        """Was something written to the run after that?"""
        self._stop_timer()
        try:
            if self.session is not None:
                await self.session.run.settle()  # how cancelled calls ended is recorded while the run is still ours
        finally:
            written = await self._release()
        return written

    async def _release(self) -> bool:
        claim, self._claim, self.session = self._claim, None, None
        if claim is None:
            return False
        self._stop_timer()
        self._runner.watch.forget(claim.run_id)
        await self._runner.log.release(claim)
        return await self._runner.desk.take_notes(claim.run_id)

    def mind_the_time(self, session: Session) -> None:
        """A budget of seconds also ends a step that takes longer than what is left."""
        limit = session.budgets.max_seconds
        if limit is None:
            return
        left = limit - session.active_seconds
        if left <= 0:
            self.stop(session, _TIME_IS_USED)
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self.mind_the_time, session)

    def stop(self, session: Session, reason: str) -> None:
        """Now, and again for as long as it goes on: it may be about to begin something."""
        self._stop_timer()
        session.stop_working(reason)
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.stop, session, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _take_note(self, note: Note) -> bool:
        """Somebody else left an answer, or wants the run to end. False when this process lost the run: the note is for
        whoever has it now."""
        session = self.session
        if session is None:
            return False

        async def end(wish: CancelNote) -> bool:
            self._end(session, wish)
            return False  # it stays until the end is recorded, in case that this process dies before

        try:
            return await take_note(note, self._runner.app, session.run, end)
        except RunEndedError:  # meanwhile
            return True
        except LogError:
            return False

    def _end(self, session: Session, wish: CancelNote) -> None:
        """Now, unless it is ending already: a note is brought again until then."""
        if session.cancelling is None:
            session.cancelling = wish
        if not session.stopped:
            self.stop(session, CANCELLED)
