"""Reads the feed of all runs, and records which notices are to be sent.

The position in the feed and the deliveries of what is before it change in one transaction, so a question is behind the
position, or its deliveries are recorded: never neither. Reading a part of the feed again records nothing again.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ....domain.call import Question
from ....domain.errors import LogUnreadableError
from ....domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ApprovalVoided,
    ConsentExpired,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    Fact,
    InputExpired,
    InputProvided,
    InputRefused,
    InputRequested,
    RunCancelled,
    RunCompleted,
    RunDegraded,
    RunFailed,
    decode_event,
)
from ....storage.event_log import EventLog, FeedEntry
from ..audit_sinks.positions import ForwardPosition, ForwardPositionStore
from ..database.interface import Connection, Database
from ..index.run_index import RunIndex
from .notice import NoticeAnswer
from .outbox import NewDelivery, Outbox
from .routing import NoticeRouter, PlannedNotice

#: No destination of the audit can have this name.
_POSITION_NAME = ":notices"
_PAGE_EVENTS = 500

_Change: TypeAlias = Callable[[Connection], None]
#: How each fact closes a question; other facts close none.
_ENDINGS: Mapping[type, str] = {
    ApprovalGranted: "approved",
    ApprovalRejected: "rejected",
    ApprovalExpired: "expired",
    ApprovalVoided: "withdrawn",
    InputProvided: "answered",
    InputRefused: "refused",
    InputExpired: "expired",
    ConsentGranted: "consented",
    ConsentRefused: "refused",
    ConsentExpired: "expired",
}
_RUN_ENDINGS = (RunCompleted, RunDegraded, RunFailed, RunCancelled)
#: Nearly no event is of interest, and only those that may be are decoded.
_may_matter = re.compile(rb'"(?:approval|input|consent)\.|"run\.(?:completed|degraded|failed|cancelled)"').search


def get_question(fact: Fact) -> Question | None:
    """Return the question that a fact asks, if it asks one."""
    match fact:
        case ApprovalRequested() | InputRequested() | ConsentRequested():
            return fact.question
        case _:
            return None


def get_answer(fact: Fact, at: int) -> NoticeAnswer:
    """Return how a fact closed its question."""
    status = _ENDINGS.get(type(fact), "withdrawn")
    answer = getattr(fact, "answer", None)
    return NoticeAnswer(status=status, by="" if answer is None or status == "expired" else answer.by, at=at)


class NoticePlanner:
    """Records deliveries for the questions in the log."""

    def __init__(  # noqa: PLR0913 - what it reads, what it asks, and where it writes
        self,
        log: EventLog,
        index: RunIndex,
        database: Database,
        outbox: Outbox,
        router: NoticeRouter,
        *,
        delays: Mapping[str, float],
        updating: frozenset[str],
        now: Callable[[], int],
    ) -> None:
        """Set up the planner. `delays`: how long each channel collects notices. `updating`: channels whose messages can
        say later how a question was answered.
        """
        self._log = log
        self._index = index
        self._database = database
        self._outbox = outbox
        self._router = router
        self._delays = delays
        self._updating = updating
        self._now = now
        self._positions = ForwardPositionStore(database, _POSITION_NAME)
        self._position: int | None = None

    async def open(self) -> None:
        """Load the position: another server may have advanced it. What is asked from now on is planned."""
        self._position = None
        await self._load_position()

    async def plan_page(self) -> bool:
        """Record the deliveries of the next events. Return False if there are none."""
        position = await self._load_position()
        page = await self._log.feed(position, _PAGE_EVENTS)
        if not page:
            return False
        # A question whose run is not in the index yet would seem to be for no one.
        await self._index.catch_up()
        changes = [change for placed in page if (change := await self._plan(placed)) is not None]
        await self._save(page[-1].position, changes)
        return True

    async def _load_position(self) -> int:
        """Return the position. Notices begin with the questions after the first start; so they do for another log."""
        if self._position is None:
            saved, end = await self._positions.load(), await self._log.feed_position()
            if saved.sent_at == 0 or saved.position > end:
                await self._save(end, ())
            else:
                self._position = saved.position
        return self._position or 0

    async def _save(self, position: int, changes: Sequence[_Change]) -> None:
        def write(connection: Connection) -> None:
            for change in changes:
                change(connection)
            self._positions.write(connection, ForwardPosition(position=position, sent_at=self._now()))

        await self._database.run(write)
        self._position = position

    async def _plan(self, placed: FeedEntry) -> _Change | None:
        entry = placed.entry
        if not _may_matter(entry.body):
            return None
        try:
            fact = decode_event(entry).fact
        except LogUnreadableError:
            return None
        if (question := get_question(fact)) is not None:
            return await self._plan_question(question, entry.run_id, entry.seq)
        run_id, seq, updating = entry.run_id, entry.seq, self._updating
        if isinstance(fact, _RUN_ENDINGS):
            return lambda connection: self._outbox.close_question(connection, run_id, "", seq, updating)
        if type(fact) in _ENDINGS:
            action_id = str(getattr(fact, "action_id", ""))
            return lambda connection: self._outbox.close_question(connection, run_id, action_id, seq, updating)
        return None

    async def _plan_question(self, question: Question, run_id: str, seq: int) -> _Change | None:
        run = await self._index.get_run(run_id)
        recipients = [] if run is None else await self._router.find_recipients(question, run)
        if not recipients:
            return None

        def add(connection: Connection) -> None:
            for each in recipients:
                self._add(connection, each, run_id, question, seq)

        return add

    def _add(self, connection: Connection, planned: PlannedNotice, run_id: str, question: Question, seq: int) -> None:
        recipient, delay = planned.recipient, self._delays.get(planned.recipient.channel, 0.0)
        is_escalation = planned.escalates_at > 0
        new = NewDelivery(
            channel=recipient.channel,
            account=recipient.account,
            recipient=recipient.address,
            kind="escalated" if is_escalation else "asked",
            run_id=run_id,
            action_id=question.action_id,
            seq=seq,
        )
        first = max(planned.escalates_at, self._now())
        wanted = first if is_escalation else first + int(delay * 1e9)
        due_at = wanted if planned.quiet_hours is None else planned.quiet_hours.find_end(wanted)
        if 0 < question.expires_at <= due_at:
            due_at = first  # nothing waits until it is too late to answer
        self._outbox.add(connection, new, due_at, is_collected=delay > 0 and not is_escalation and due_at == wanted)
