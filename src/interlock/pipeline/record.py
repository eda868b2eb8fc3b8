"""Stage 9, and after every stage: append what happened.

A fact is sealed at once: it gets its `seq` and time, is encoded, applied to the ledger and linked into the chain. It
is written at the next `commit`, together with everything sealed meanwhile, so concurrent calls share commits. Code that
needs a fact to be durable awaits `commit`: before an effectful handler runs, before anything is shown outside.

An append that fails stops the run in this process: no fact can be sealed or committed after it, so nothing starts.
"""

import asyncio
from collections.abc import Callable
from hashlib import sha256

import msgspec

from ..domain.errors import ConfigurationError, LogCorruptError, LogError
from ..domain.event import Event, Fact, LogEntry, decode_event, encode_event, escape_line_breaks
from ..domain.json import encode
from ..domain.redaction import RedactFunction, redact_json
from ..domain.rendering import neutralize
from ..domain.state.ledger import EVENT_HANDLERS, Ledger, transition_error
from ..rendering.text import describe_error
from ..storage.event_log import EventLog, Lease

#: Where there is none of these bytes, there is no line break to escape. A byte is found faster than two.
_FIRST_OF_BREAK, _FIRST_OF_NEXT_LINE = "\u2028".encode()[0], "\u0085".encode()[0]


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
        self._log = log
        self._now = now
        #: Takes declared secrets out of whatever is about to be written, wherever it came from.
        self._redact = redact
        self._sealed: list[LogEntry] = []
        self._durable = ledger.next_seq
        self._writing: asyncio.Future[None] | None = None
        #: Why nothing more can be recorded in this process.
        self.error: LogError | None = None
        self._watchers: list[asyncio.Future[None]] = []
        #: Several calls are under way: a commit waits for those that are about to ask for one, too.
        self.many = False
        #: The owner of the run commits before it shows anything, so a batch need not.
        self.commits_later = False
        #: The `seq` at which a snapshot is worth its cost.
        self.next_snapshot = 0
        self._gathering = False
        #: The last fact with characters that UTF-8 cannot encode, as it was recorded.
        self.escaped: Fact | None = None

    def add(self, fact: Fact, correlation_id: str = "", causation_id: int | None = None) -> int:
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
        self.head = head = sha256(self.head + body).digest()
        self._sealed.append(LogEntry(run_id, seq, body, head))
        return seq

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
            elif self.many and not self._log.immediate:
                self._gathering = True
                asyncio.get_running_loop().call_soon(self._write_gathered)
            else:
                self._write()
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

    async def _exclude_writes(self) -> None:
        while self._writing is not None or self._gathering:
            await self._change()
        self._writing = asyncio.get_running_loop().create_future()

    async def committed_after(self, seq: int) -> None:
        """Wait until an event after `seq` is durable."""
        while self._durable <= seq + 1:
            if self.error is not None:
                raise self.error
            await self._change()

    def _write_gathered(self) -> None:
        self._gathering = False
        if self._sealed and self._writing is None:
            self._write()
        elif self._watchers:
            self._wake()

    def _change(self) -> "asyncio.Future[None]":
        """Return a future that is done at the next write. Every caller has its own, so giving up changes nothing."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        return watcher

    def _write(self) -> None:
        entries, self._sealed = self._sealed, []
        try:
            written = self._log.append(self.run_id, entries, self.lease)
        except Exception as error:
            self._stop(error)
            return
        if written is None:
            self._durable = entries[-1].seq + 1
            if self._watchers:
                self._wake()
            return
        self._writing = written
        written.add_done_callback(lambda done: self._written(done, entries[-1].seq))

    def _written(self, done: "asyncio.Future[None]", last_seq: int) -> None:
        self._writing = None
        error = done.exception()
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
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)


def _failed(error: BaseException) -> LogError:
    return LogError(f"the log failed: {neutralize(describe_error(error))}")
