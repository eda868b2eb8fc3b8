"""What runs wait for: people, or another process, in them and in the runs inside their calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Container

from ..agent.next_step import is_persons_turn
from ..domain.call import Question
from ..domain.chain import decode_event
from ..domain.event import Event
from ..domain.state.ledger import Ledger
from ..history.fold import load
from ..storage.event_log import EventLog
from .children import open_inside
from .command_poller import LOOK_SECONDS


class Waits:
    def __init__(
        self, log: EventLog, moved_here: Container[str], now: Callable[[], int], *, chat: bool = False
    ) -> None:
        self._log = log
        self._moved_here = moved_here
        self._now = now
        self._chat = chat

    async def can_go_on(self, ledger: Ledger) -> bool:
        """Is there something to do that waits for no person?"""
        if ledger.is_over or any(map(self._is_open, ledger.open_questions())):
            return False
        if self._chat and is_persons_turn(ledger.dialogue) and not ledger.open_calls():
            return False
        return not any([await self.inside(run_id) for run_id in open_inside(ledger)])

    async def waits_for(self, ledger: Ledger, run_id: str) -> bool:
        """Does it wait for this run, which the log says is inside one of its calls?"""
        return run_id in open_inside(ledger) and await self.inside(run_id)

    async def inside(self, run_id: str) -> bool:
        """Does the run inside a call wait for a person, or for another process that moves it on?"""
        ledger = (await load(self._log, run_id)).ledger
        if ledger.is_over:
            return False
        return not await self.can_go_on(ledger) or bool(await self._holder(run_id))

    async def questions(self, ledger: Ledger) -> list[Question]:
        """What people are asked in this run, and in the runs inside its calls."""
        found = ledger.open_questions()
        if not ledger.is_over:
            for run_id in open_inside(ledger):
                found += await self.questions((await load(self._log, run_id)).ledger)
        return found

    async def held_inside(self, ledger: Ledger) -> str:
        """Which run inside a call is moved on by another process, in words; empty where none is."""
        if ledger.is_over:
            return ""
        for run_id in open_inside(ledger):
            if holder := await self._holder(run_id):
                return (
                    f"It waits for {run_id}, which is moved on by {holder}. It goes on when that is done, or when it "
                    "is taken over by force."
                )
        return ""

    def _is_open(self, question: Question) -> bool:
        return not question.expires_at or self._now() < question.expires_at

    async def _holder(self, run_id: str) -> str:
        """The living process that has the run, in words, where it is not moved on here."""
        return "" if run_id in self._moved_here else (await self._log.holders()).get(run_id, "")


async def written_since(log: EventLog, seen: int, seconds: float) -> bool:
    """Has anybody written to the log since its version was `seen`? Waits that long for it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while log.version() == seen:
        if loop.time() >= until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def follow(log: EventLog, run_id: str, after_seq: int, is_live: Callable[[], bool]) -> AsyncIterator[Event]:
    """The events after `after_seq`, and those that come for as long as it lives."""
    while True:
        live, seen = is_live(), log.version()
        for entry in await log.read(run_id, after_seq):
            yield decode_event(entry)
            after_seq = entry.seq
        if not live:
            return
        while is_live() and not await written_since(log, seen, LOOK_SECONDS):
            pass
