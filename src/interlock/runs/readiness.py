"""What runs wait for: people, or another process, including their child runs."""

from collections.abc import AsyncIterator, Callable, Container

from ..agent.next_step import is_user_turn
from ..domain.call import Question
from ..domain.event import Event, decode_event
from ..domain.state.ledger import Ledger
from ..history.fold import load_run
from ..storage.event_log import EventLog
from ..storage.polling import POLL_SECONDS
from .children import list_open_children


class ReadinessChecker:
    """Checks whether a run can be resumed, and what it waits for."""

    def __init__(
        self, log: EventLog, active_runs: Container[str], now: Callable[[], int], *, chat: bool = False
    ) -> None:
        self._log = log
        self._active_runs = active_runs
        self._now = now
        self._chat = chat

    async def can_resume(self, ledger: Ledger) -> bool:
        """Return True if there is work that needs no person."""
        if ledger.is_over or any(map(self._is_unexpired, ledger.open_questions())):
            return False
        if (self._chat or ledger.is_chat) and is_user_turn(ledger.dialogue) and not ledger.open_calls():
            return False
        return not any([await self.is_child_waiting(run_id) for run_id in list_open_children(ledger)])

    async def is_waiting_for(self, ledger: Ledger, run_id: str) -> bool:
        """Return True if the run waits for this child run."""
        return run_id in list_open_children(ledger) and await self.is_child_waiting(run_id)

    async def is_child_waiting(self, run_id: str) -> bool:
        """Return True if the child run waits for a person, or for another process that owns it."""
        ledger = (await load_run(self._log, run_id)).ledger
        if ledger.is_over:
            return False
        return not await self.can_resume(ledger) or bool(await self._find_holder(run_id))

    async def open_questions(self, ledger: Ledger) -> list[Question]:
        """Return the open questions of this run and its child runs."""
        found = ledger.open_questions()
        if not ledger.is_over:
            for run_id in list_open_children(ledger):
                found += await self.open_questions((await load_run(self._log, run_id)).ledger)
        return found

    async def describe_busy_child(self, ledger: Ledger) -> str:
        """Return a description of a child run that another process owns; empty where there is none."""
        if ledger.is_over:
            return ""
        for run_id in list_open_children(ledger):
            if holder := await self._find_holder(run_id):
                return (
                    f"It waits for {run_id}, which is owned by {holder}. It continues when that is done, or when "
                    "that run is taken over by force."
                )
        return ""

    def _is_unexpired(self, question: Question) -> bool:
        return not question.expires_at or self._now() < question.expires_at

    async def _find_holder(self, run_id: str) -> str:
        """Return a description of the living process that owns the run, where it is not this handle."""
        return "" if run_id in self._active_runs else await self._log.lease_holder(run_id)


async def follow_events(
    log: EventLog, run_id: str, after_seq: int, is_live: Callable[[], bool]
) -> AsyncIterator[Event]:
    """Yield the events after `after_seq`, and new ones while the run is live."""
    while True:
        live, seen = is_live(), log.version()
        for entry in await log.read(run_id, after_seq):
            yield decode_event(entry)
            after_seq = entry.seq
        if not live:
            return
        while is_live() and not await log.wait_for_change(seen, POLL_SECONDS):
            pass
