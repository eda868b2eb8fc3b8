"""Sends the deliveries of one channel: one after the other, for as long as it takes.

Before every attempt it is checked that the question is still open and that its recipient may still get it; then the
attempt is recorded, and after it the outcome. While the channel does not answer, deliveries are tried again with
growing waits. What it rejects is tried a few times more and then set aside, for a person to look at and retry.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import assert_never

from ....domain.call import Question
from ....domain.errors import LogUnreadableError
from ....domain.event import Event, decode_event
from ....domain.state.lifecycle import ActionState
from ....storage.event_log import EventLog
from ..audit_sinks.retry_loop import RetryLoop, RetryOptions
from ..audit_sinks.senders import SendDelay, SendRejection, SendSuccess
from ..index.rows import RunRow
from ..index.run_index import RunIndex
from .channel_settings import ChannelSettings, PushChannel
from .notice import (
    MAX_LISTED,
    Notice,
    NoticeAnswer,
    NoticeMessage,
    NoticeOutcome,
    NoticeSender,
    RecipientGone,
    build_inbox_url,
    build_notice,
)
from .outbox import Delivery, Outbox
from .planner import get_answer, get_question
from .routing import NoticeRouter

#: Notices in one digest.
_MAX_DIGEST = 500
_MINUTE_NS = 60_000_000_000


class DispatcherOptions(RetryOptions, frozen=True, kw_only=True):
    """Retries and waits of a dispatcher."""

    #: How often a delivery is sent to a channel that rejects it.
    max_attempts: int = 5


class NoticeReader:
    """Reads from the log what deliveries are about."""

    def __init__(
        self, log: EventLog, index: RunIndex, public_url: Callable[[], str], urgent_risks: frozenset[str]
    ) -> None:
        self._log = log
        self._index = index
        self._urgent_risks = urgent_risks
        self.public_url = public_url

    async def get_open_run(self, delivery: Delivery) -> RunRow | None:
        """Return the run of a delivery, if its question can still be answered."""
        action = await self._index.get_action(delivery.action_id, delivery.run_id)
        run = await self._index.get_run(delivery.run_id)
        is_open = action is not None and action.state is ActionState.PENDING and run is not None and not run.is_over
        return run if is_open else None

    async def read_notice(self, delivery: Delivery, requester: str = "") -> Notice | None:
        """Return what the delivery of a question says; None when the log has it no longer."""
        event = await self._read_event(delivery)
        question = None if event is None else get_question(event.fact)
        return None if question is None else self._build(question, requester)

    async def read_answer(self, delivery: Delivery) -> NoticeAnswer | None:
        """Return how the question of an update was closed; None when the log has it no longer."""
        event = await self._read_event(delivery)
        return None if event is None else get_answer(event.fact, event.at)

    def _build(self, question: Question, requester: str) -> Notice:
        return build_notice(question, requester, self.public_url(), self._urgent_risks)

    async def _read_event(self, delivery: Delivery) -> Event | None:
        for entry in await self._log.read(delivery.run_id, delivery.seq - 1, 1):
            try:
                return decode_event(entry)
            except LogUnreadableError:
                return None
        return None


class ChannelDispatcher:
    """Sends to one channel."""

    def __init__(  # noqa: PLR0913 - what it sends, to whom, and how
        self,
        channel: ChannelSettings,
        sender: NoticeSender,
        outbox: Outbox,
        reader: NoticeReader,
        router: NoticeRouter,
        *,
        options: DispatcherOptions | None = None,
    ) -> None:
        self.channel = channel
        self.sender = sender
        self._outbox = outbox
        self._reader = reader
        self._router = router
        self._options = options or DispatcherOptions()
        self.loop = RetryLoop(self._options)
        #: Held from the claim of a delivery until its outcome is recorded.
        self.attempt_lock = asyncio.Lock()
        #: By recipient: when messages were sent within the last minute.
        self._recent: dict[str, deque[int]] = {}

    @property
    def name(self) -> str:
        """Name of the channel."""
        return self.channel.name

    async def run(self) -> None:
        """Send until cancelled."""
        await self.loop.run(self.send_next)

    async def send_next(self) -> float | None:
        """Send what is due next. Return the seconds to wait before the next step; None: there is nothing to send."""
        due = await self._outbox.find_due(self.name, _MAX_DIGEST)
        if not due:
            await self._plan_idle()
            return None
        if due[0].kind in {"answered", "escalation_answered"}:
            return await self._send_answer(due[0])
        if due[0].batch:
            return await self._send_asked(due, due[0].batch)
        return await self._send_new(due)

    async def _send_new(self, due: list[Delivery]) -> float:
        """Send the first of these, or all as one message when messages would be too many."""
        now, limit = self._options.now(), self.channel.max_per_minute
        recent = self._recent.setdefault(due[0].recipient, deque())
        while recent and recent[0] <= now - _MINUTE_NS:
            recent.popleft()
        if len(recent) >= limit:
            await self._outbox.finish(due, "waiting", due_at=recent[0] + _MINUTE_NS)
            return 0.0
        # What waited, for the end of quiet hours or of a minute with too many, comes as one message.
        has_waited = due[0].due_at > due[0].created_at
        is_collected = self.channel.digest_seconds > 0 or has_waited or len(recent) >= limit - 1
        return await self._send_asked(due if is_collected else due[:1], "")

    async def _send_asked(self, due: Sequence[Delivery], batch: str) -> float:
        wanted: list[Delivery] = []
        notices: list[Notice] = []
        for delivery in due:
            if (notice := await self._read_wanted(delivery)) is None:
                continue
            wanted.append(delivery)
            notices.append(notice)
        if not wanted:
            return 0.0
        message = NoticeMessage(
            key=batch or _compute_batch_key(wanted),
            recipient=wanted[0].recipient,
            notices=tuple(notices[:MAX_LISTED]),
            total=len(notices),
            is_escalated=wanted[0].kind == "escalated",
            is_repeated=wanted[0].attempts > 0,
            inbox_url=build_inbox_url(self._reader.public_url()),
            sent_at=self._options.now(),
        )
        return await self._attempt(wanted, message)

    async def _read_wanted(self, delivery: Delivery) -> Notice | None:
        """Return the notice, or withdraw the delivery."""
        run = await self._reader.get_open_run(delivery)
        if run is None:
            await self._outbox.finish([delivery], "withdrawn", problem="The question was closed.")
            return None
        if delivery.account and not await self._router.may_receive(self.name, delivery.account, run):
            await self._outbox.finish([delivery], "withdrawn", problem="The person gets no notices of this any more.")
            return None
        notice = await self._reader.read_notice(delivery, run.requester)
        if notice is None:
            await self._outbox.finish([delivery], "withdrawn", problem="The question is not in the log any more.")
        return notice

    async def _send_answer(self, delivery: Delivery) -> float:
        """Let the message of a question say how it was answered."""
        asked = await self._outbox.find_asked(delivery)
        if asked is not None and asked.state in {"waiting", "sending"}:
            await self._outbox.finish([delivery], "waiting", due_at=asked.due_at + 1)
            return 0.0
        answer = await self._reader.read_answer(delivery)
        notice = None if asked is None else await self._reader.read_notice(asked)
        is_alone = asked is not None and asked.state == "sent" and asked.batch == asked.key
        if asked is None or notice is None or answer is None or not is_alone:
            await self._outbox.finish([delivery], "withdrawn", problem="There is no message of its own to update.")
            return 0.0
        message = NoticeMessage(
            key=delivery.key,
            recipient=delivery.recipient,
            notices=(notice,),
            answer=answer,
            reference=asked.reference,
            is_repeated=delivery.attempts > 0,
            inbox_url=build_inbox_url(self._reader.public_url()),
            sent_at=self._options.now(),
        )
        return await self._attempt([delivery], message)

    async def _attempt(self, deliveries: Sequence[Delivery], message: NoticeMessage) -> float:
        async with self.attempt_lock:
            if not await self._outbox.claim(deliveries, message.key):
                return 0.0
            return await self._record(deliveries, message, await self.sender.send(message))

    async def _record(self, deliveries: Sequence[Delivery], message: NoticeMessage, outcome: NoticeOutcome) -> float:
        match outcome:
            case SendSuccess(reference):
                await self._outbox.finish(deliveries, "sent", reference=reference)
                self._recent.setdefault(message.recipient, deque()).append(self._options.now())
                self.loop.record_success()
                return 0.0
            case SendDelay(problem, retry_after_seconds):
                wait = self.loop.record_failure(problem, retry_after_seconds)
                await self._postpone(deliveries, wait, problem)
                # Browsers have different push services: one that does not answer does not hold the others up.
                return 0.0 if isinstance(self.channel, PushChannel) else wait
            case SendRejection(problem):
                await self._handle_rejection(deliveries, problem)
                return 0.0
            case RecipientGone(problem):
                await self._outbox.finish(deliveries, "withdrawn", problem=problem)
                return 0.0
            case _:
                assert_never(outcome)

    async def _handle_rejection(self, deliveries: Sequence[Delivery], problem: str) -> None:
        attempts = deliveries[0].attempts + 1
        if attempts >= self._options.max_attempts:
            await self._outbox.finish(deliveries, "dead", problem=problem)
            self.loop.record_failure(problem)
            return
        wait = min(self._options.first_wait_seconds * 2.0 ** (attempts - 1), self._options.max_wait_seconds)
        await self._postpone(deliveries, wait, problem)

    async def _postpone(self, deliveries: Sequence[Delivery], seconds: float, problem: str) -> None:
        due_at = self._options.now() + int(seconds * 1e9)
        await self._outbox.finish(deliveries, "waiting", due_at=due_at, problem=problem)

    async def _plan_idle(self) -> None:
        """Wake up in time for what is due later."""
        due_at = await self._outbox.get_next_due(self.name)
        seconds = (due_at - self._options.now()) / 1e9 if due_at else self._options.idle_seconds
        self.loop.idle_seconds = max(seconds, 0.01)


def _compute_batch_key(deliveries: Sequence[Delivery]) -> str:
    """Return the key of a message: that of its only delivery, or one of exactly these."""
    if len(deliveries) == 1:
        return deliveries[0].key
    return sha256("\n".join(each.key for each in deliveries).encode()).hexdigest()[:32]
