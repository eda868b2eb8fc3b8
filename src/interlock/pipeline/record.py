"""Stage 9, and after every stage: append what happened.

A fact is sealed at once: it gets its `seq` and time, is encoded, applied to the ledger and linked into the chain. It
is written at the next `commit`, together with everything sealed meanwhile, so concurrent calls share commits. Code that
needs a fact to be durable awaits `commit`: before an effectful handler runs, before anything is shown outside. What was
sealed and not written for 25 to 50 ms is written in the background, so a call is in the log while it runs, and a crash
inside a read leaves its start. Nothing waits for that.

An append that fails stops the run in this process: no fact can be sealed or committed after it, so nothing starts.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from threading import Event as ThreadEvent
from threading import Lock, Thread
from time import sleep, time_ns
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from ..domain.commands import AnswerClaim, answer_key, command_key, encode_command
from ..domain.errors import ConfigurationError, LogCorruptError, LogError
from ..domain.event import (
    NEWER,
    Event,
    Fact,
    InvocationCompleted,
    InvocationStarted,
    LogEntry,
    ModelRequested,
    PolicyEvaluated,
    decode_event,
    encode_event,
    escape_line_breaks,
)
from ..domain.json import encode, escape_surrogates
from ..domain.redaction import RedactFunction, redact_json
from ..domain.rendering import neutralize
from ..domain.state.ledger import ANSWER_TRIGGERS, EVENT_HANDLERS, Ledger, transition_error
from ..domain.state.lifecycle import RunState
from ..rendering.text import describe_error
from ..storage.direct_future import DirectFuture, complete_all
from ..storage.event_log import ConditionalAppend, EventLog, Lease, LeasingAppend, QueuedCommand

#: Where there is none of these bytes, there is no line break to escape. A byte is found faster than two.
_FIRST_OF_BREAK, _FIRST_OF_NEXT_LINE = "\u2028".encode()[0], "\u0085".encode()[0]

#: What is sealed for this long and not written is written in the background. Calls that end sooner cost no write.
_FLUSH_SECONDS = 0.025
#: The thread sleeps after this many looks that found nothing.
_IDLE_LOOKS = 100


class _Flusher:
    """A thread that finds what the recorders of this process sealed and did not write, and has their event loops write
    it. So a timer for each call is not needed, and sealing an event costs nothing more.
    """

    def __init__(self) -> None:
        self.is_idle = True
        self._wakeup = ThreadEvent()
        self._recorders: WeakKeyDictionary[Recorder, asyncio.AbstractEventLoop] = WeakKeyDictionary()
        self._lock = Lock()
        self._thread: Thread | None = None

    def add(self, recorder: "Recorder") -> None:
        with suppress(RuntimeError), self._lock:  # without an event loop nothing runs
            self._recorders[recorder] = asyncio.get_running_loop()

    def wake(self) -> None:
        self.is_idle = False
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="interlock-flush", daemon=True)
                self._thread.start()
        self._wakeup.set()

    def _run(self) -> None:
        looks, seen = 0, dict[int, int]()
        while True:
            sleep(_FLUSH_SECONDS)
            found = self._look(seen)
            looks, seen = 0 if found else looks + 1, found
            if looks > _IDLE_LOOKS:
                self._wakeup.clear()
                self.is_idle = True
                if not (seen := self._look({})):
                    self._wakeup.wait()
                self.is_idle, looks = False, 0

    def _look(self, seen: dict[int, int]) -> dict[int, int]:
        """Flush what was unwritten at the last look, too. Return what is unwritten, by recorder."""
        with self._lock:
            recorders = list(self._recorders.items())
        unwritten: dict[int, int] = {}
        for recorder, loop in recorders:
            seq = recorder.unwritten_seq
            if seq >= 0 and not loop.is_closed():
                unwritten[id(recorder)] = seq
                if seen.get(id(recorder)) == seq:
                    with suppress(RuntimeError):  # the loop was closed meanwhile
                        loop.call_soon_threadsafe(recorder.flush)
        return unwritten


_flusher = _Flusher()
os.register_at_fork(after_in_child=_flusher.__init__)  # the thread is not copied


class _AnswerQueuedError(LogError):
    """Another answer was first."""


class Recorder:
    """Records the events of one run: seals them, applies them to the ledger, and commits them."""

    def __init__(
        self,
        log: EventLog,
        ledger: Ledger,
        head: bytes,
        now: Callable[[], int],
        redact: RedactFunction | None = None,
    ) -> None:
        self.ledger = ledger
        self.head = head
        self.run_id = ledger.run_id
        #: The right to append, where the run was claimed.
        self.lease: Lease | None = None
        #: The lease begins with the first append.
        self.acquires_lease = False
        self._log = log
        #: Whether an append is durable at once, so that `write` does what `commit` does.
        self.is_immediate = log.immediate
        self._now = now
        #: Takes declared secrets out of whatever is about to be written, wherever it came from.
        self._redact = redact
        self._sealed: list[LogEntry] = []
        self._durable = ledger.next_seq
        self._writing: asyncio.Future[Any] | None = None
        #: Why nothing more can be recorded in this process.
        self.error: LogError | None = None
        self._watchers: list[DirectFuture[None]] = []
        #: How many calls are under way: with several, a commit waits for those that are about to ask for one, too.
        self.calls_under_way = 0
        #: Turns whose calls all ended without waiting.
        self.turns_at_once = 0
        #: The owner of the run commits before it shows anything, so a batch need not.
        self.commits_later = False
        #: The `seq` at which a snapshot is worth its cost.
        self.next_snapshot = 0
        self._gathering = False
        #: The last fact with characters that UTF-8 cannot encode, as it was recorded.
        self.escaped: Fact | None = None
        #: Keys of claimed answers, until they are durable.
        self._claims: set[str] = set()
        self._withdrawing: set[asyncio.Future[None]] = set()
        _flusher.add(self)

    def add(  # noqa: C901 - in one function, since it is called for every event
        self, fact: Fact, correlation_id: str = "", causation_id: int | None = None
    ) -> int:
        """Seal a fact and return its `seq`. A fact that the state tables refuse is a bug and changes nothing."""
        if self.error is not None:
            raise self.error
        ledger, run_id = self.ledger, self.run_id
        seq = ledger.next_seq
        event = Event(seq, run_id, self._now(), correlation_id or run_id, causation_id, fact)
        try:
            body = encode(event)
        except UnicodeEncodeError:
            body = encode_event(event)
            self.escaped = fact = decode_event(LogEntry(run_id, seq, body, b"")).fact
        if type(fact) in NEWER:
            is_plain = (  # what every call records has no field of a later version, and none is searched for
                (type(fact) is InvocationStarted and not (fact.effect or fact.trial) and fact.arguments is None)
                or (type(fact) is InvocationCompleted and fact.decision is None and fact.arguments is None)
                or (type(fact) is ModelRequested and not (fact.purpose or fact.estimated_tokens))
                or (
                    type(fact) is PolicyEvaluated
                    and not ((made := fact.decision).effect or made.effect_rule or made.title or made.budgets)
                    and made.ask == "before"
                    and made.approver == "person"
                )
            )
            if not is_plain:
                body = encode_event(event)
        if _FIRST_OF_BREAK in body or _FIRST_OF_NEXT_LINE in body:
            body = escape_line_breaks(body)
        if self._redact is not None:
            body, fact = self._without_secrets(self._redact, body, fact)
        try:
            EVENT_HANDLERS[type(fact)](ledger, fact, seq)
        except KeyError as unknown:
            raise transition_error(event, unknown) from None
        ledger.next_seq = seq + 1
        if not seq:
            ledger.started_at = event.at
        if type(fact) in ANSWER_TRIGGERS:
            ledger.actions[cast(Any, fact).action_id].answered_at = event.at
        self.head = head = sha256(self.head + body).digest()
        self._sealed.append(LogEntry(run_id, seq, body, head))
        if _flusher.is_idle:
            _flusher.wake()
        return seq

    @property
    def unwritten_seq(self) -> int:
        """The first event that was not given to the log; -1 where there is none. Read by other threads, too."""
        sealed = self._sealed
        return sealed[0].seq if sealed else -1

    def flush(self) -> None:
        """Write what is sealed, although no one waits for it."""
        # The calls of a response are in one append with it: without them the model would have to be asked again.
        if self._sealed and self._writing is None and self.error is None and self.ledger.dialogue.awaited <= 0:
            self.write()

    def _without_secrets(self, redact: RedactFunction, body: bytes, fact: Fact) -> tuple[bytes, Fact]:
        text = body.decode()
        clean = redact_json(msgspec.json.decode(body), redact, text)
        if clean is None:
            return body, fact
        entry = LogEntry(self.run_id, self.ledger.next_seq, escape_line_breaks(clean.encode()), b"")
        try:
            return entry.body, decode_event(entry).fact
        except LogCorruptError:
            raise ConfigurationError("a declared secret is one of the words that the log is made of") from None

    async def commit(self) -> None:
        """Return when everything sealed so far is durable."""
        wanted = self.ledger.next_seq
        while self._durable < wanted:
            if self.error is not None:
                raise self.error
            if self._writing is not None or self._gathering:
                await self._change()
            elif self.calls_under_way > 1 and not self.is_immediate:
                self._gathering = True
                asyncio.get_running_loop().call_soon(self._write_gathered)
            else:
                self.write()
        if self.error is not None:
            raise self.error

    async def acquire_lease(self) -> None:
        """Acquire the lease of the run. Nothing is appended meanwhile: only the holder of a lease may append."""
        await self._exclude_writes()
        try:
            if self.lease is None:
                self.lease = await self._log.acquire(self.run_id)
        finally:
            self._writing = None
            self._wake()

    async def release_lease(self) -> None:
        """Release the lease. Everything sealed so far is durable before, unless the log failed."""
        if self.error is None:
            await self.commit()
        await self._exclude_writes()
        try:
            lease, self.lease = self.lease, None
            if lease is not None:
                await self._log.release(lease)
        finally:
            self._writing = None
            self._wake()

    @property
    def can_release_with_append(self) -> bool:
        """True when `release_with_append` can make the end or the pause of the run durable."""
        has_stopped = self.ledger.state is not RunState.RUNNING and self.lease is not None and not self._claims
        return has_stopped and hasattr(self._log, "append_and_release")

    async def release_with_append(self) -> bool | None:
        """Make the end or the pause of the run durable, and release the lease in the same append. Return what
        `EventLog.release` does; None when there is nothing to append so, and the lease is still to be released.
        """
        if not self.can_release_with_append:
            return None
        await self.settle_writes()
        if self.error is not None and self._durable < self.ledger.next_seq:
            raise self.error
        lease, entries = self.lease, self._sealed
        if lease is None or not entries:
            return None
        self._sealed = []
        try:
            written = cast(LeasingAppend, self._log).append_and_release(self.run_id, entries, lease)
        except Exception as error:
            self._stop(error)
            await self.commit()  # which raises it
            return None
        self._writing = written
        written.add_done_callback(lambda done: self._written(done, entries[-1].seq))
        await self.commit()
        return written.result()

    async def settle_writes(self) -> None:
        """Return when no append is under way, however it ended."""
        while self._writing is not None or self._gathering:
            await self._change()

    async def _exclude_writes(self) -> None:
        await self.settle_writes()
        self._writing = asyncio.get_running_loop().create_future()

    async def claim_answer(self, action_id: str, *, approved: bool, by: str) -> bool:
        """Reserve an open question for an answer that is recorded next. Return False when another answer was first: the
        log has it, or it is queued.

        Every answer passes the one conditional insert of `EventLog.enqueue`, so exactly one of any number counts. The
        claim is removed with the queued commands, once the answer is durable. A question that no other process can
        have seen needs no claim, and without a lease the append itself decides.
        """
        action, lease = self.ledger.actions[action_id], self.lease
        if lease is None or (self._sealed and self._sealed[0].seq <= action.asked_seq):
            return action.is_open
        claim = AnswerClaim(action_id, approved, escape_surrogates(by), time_ns(), lease.token)
        command = QueuedCommand(command_key(claim), encode_command(claim))
        claiming = asyncio.ensure_future(self._log.enqueue(self.run_id, command))
        try:
            is_first = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(partial(self._withdraw, command.key))
            raise
        if is_first and not action.is_open:  # it was answered right before
            await self._log.ack(self.run_id, command.key)
            return False
        if is_first:
            self._claims.add(command.key)
        return is_first

    @property
    def can_commit_answer(self) -> bool:
        """True when `commit_answer` can make the next event durable: the log offers it, and nothing else is written."""
        is_idle = not self._sealed and self._writing is None
        return is_idle and self.lease is not None and hasattr(self._log, "append_unless_queued")

    async def commit_answer(self, action_id: str) -> bool:
        """Make an answer durable that was just recorded without a claim. Return False when another one is queued: then
        nothing more can be recorded here, and the run is to be opened again.
        """
        self.write(unless_queued=answer_key(action_id))
        try:
            await self.commit()
        except _AnswerQueuedError:
            return False
        return True

    async def ack_claims(self) -> None:
        """Remove the claims of answers that were recorded. They are durable first."""
        if self._claims:
            await self.commit()
            while self._claims:
                await self._log.ack(self.run_id, self._claims.pop())

    def _withdraw(self, key: str, claiming: "asyncio.Future[bool]") -> None:
        """Remove a claim whose answer is not recorded, because the call was woken meanwhile."""
        if not claiming.cancelled() and claiming.exception() is None and claiming.result():
            self._withdrawing.add(task := asyncio.ensure_future(self._log.ack(self.run_id, key)))
            task.add_done_callback(self._withdrawing.discard)

    async def committed_after(self, seq: int) -> None:
        """Wait until an event after `seq` is durable."""
        while self._durable <= seq + 1:
            if self.error is not None:
                raise self.error
            await self._change()

    def _write_gathered(self) -> None:
        self._gathering = False
        if self._sealed and self._writing is None:
            self.write()
        elif self._watchers:
            self._wake()

    def _change(self) -> "asyncio.Future[None]":
        """Return a future that is done at the next write. Every caller has its own, so giving up changes nothing."""
        watcher: DirectFuture[None] = DirectFuture(loop=asyncio.get_running_loop())
        self._watchers.append(watcher)
        return watcher

    def write(self, unless_queued: str = "") -> bool:
        """Give what is sealed to the log. Return True if it is durable now: else `commit` waits for that, or raises.
        `unless_queued`: only if no command is queued under this key.
        """
        entries, self._sealed = self._sealed, []
        if not entries:
            return self.error is None
        try:
            if unless_queued:
                log = cast(ConditionalAppend, self._log)
                written = log.append_unless_queued(self.run_id, entries, self.lease, unless_queued)
            elif self.acquires_lease and self.lease is None:
                written = cast(LeasingAppend, self._log).append_and_acquire(self.run_id, entries)
            else:
                written = self._log.append(self.run_id, entries, self.lease)
        except Exception as error:
            self._stop(error)
            return False
        if written is None:
            self._durable = entries[-1].seq + 1
            if self._watchers:
                self._wake()
            return True
        self._writing = written
        written.add_done_callback(lambda done: self._written(done, entries[-1].seq, bool(unless_queued)))
        return False

    def _written(self, done: "asyncio.Future[Any]", last_seq: int, is_conditional: bool = False) -> None:
        self._writing = None
        error = done.exception()
        if error is None and is_conditional and done.result() is False:
            error = _AnswerQueuedError("another answer was queued before this one was recorded. Nothing was written.")
        if error is None and isinstance(acquired := done.result(), Lease):
            self.lease = acquired
        if error is None:
            self._durable = last_seq + 1
            self._wake()
        else:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        self.error = error if isinstance(error, LogError) else _failed(error)
        self.error.__cause__ = error if error is not self.error else error.__cause__
        self._wake()

    def _wake(self) -> None:
        watchers, self._watchers = self._watchers, []
        complete_all([(watcher, None) for watcher in watchers])


def _failed(error: BaseException) -> LogError:
    return LogError(f"the log failed: {neutralize(describe_error(error))}")
