"""Whether there is anything to do in a run that waits for no person. Looking writes nothing: to open a run that can do
nothing would tell its log so each time."""

from collections.abc import Callable
from contextlib import suppress

from ....domain.chain import decode_event
from ....domain.errors import LogCorruptError
from ....domain.event import RunPaused
from ....domain.state.ledger import Ledger
from ....domain.state.lifecycle import ActionState, CallState
from ....history.fold import load_run
from ....runs.fork import is_unopened_fork
from ..index.rows import RunRow
from .runners import AgentRunners

_ANSWERED_STATES = frozenset({ActionState.APPROVED, ActionState.REJECTED, ActionState.EXPIRED})


class ResumeCheck:
    def __init__(self, runners: AgentRunners, now: Callable[[], int]) -> None:
        self._runners = runners
        self._now = now

    async def can_resume(self, row: RunRow) -> bool:
        """Is there something to do, as the log has it now, by an agent that is here?"""
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
        """The same at a glance, for very many runs: False where it surely cannot."""
        if not row.open_questions:
            return True
        log = self._runners.log
        if await log.queued_commands(row.run_id):
            return True
        with suppress(LogCorruptError):
            last = await log.read(row.run_id, row.last_seq - 1, 1)
            return not (last and isinstance(decode_event(last[0]).fact, RunPaused))
        return False

    def _has_unapplied_answer(self, ledger: Ledger) -> bool:
        """Has one question of several been answered, or run out of time, and nothing come of it yet?"""
        for action in ledger.actions.values():
            call, question = ledger.calls.get(action.question.call_id), action.question
            is_expired = action.is_open and 0 < question.expires_at <= self._now()
            is_unobserved = call is not None and call.state is not CallState.OBSERVED
            if is_unobserved and (is_expired or action.state in _ANSWERED_STATES):
                return True
        return False
