"""Sends every event of the log to one destination: in order, at least once, for as long as it takes.

What a crash can do. The end of a batch is written down before it is sent, and the position after it was taken. So
after a kill at any point the same batch is sent again under the same delivery, and nothing is passed over. The log is
the queue: nothing is copied, and a receiver that is away for a week costs nothing.

What a receiver can do. While it does not answer, or says that it cannot now, the batch is sent again with growing
waits. When it rejects a batch, the batch is halved until the rejected event is found. That one is
tried a few times more and then set aside, with its place in the log and the reason, for a person to look at and
`retry`. An event that is set aside is the only thing that ever comes out of order.

`Forwarders` are all of them: created from the configuration, started, stopped, and monitored.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import assert_never

import msgspec

from ....domain.errors import ConfigurationError
from ....storage.event_log import EventLog, FeedEntry
from ..addresses import Resolver, resolve_with_system
from ..configured_secret import read_secret
from ..database.interface import Database
from ..safe_http import SafeClient, create_ssl_context
from .batch_builder import BatchBuilder, PreparedBatch
from .destination import (
    Destination,
    FileDestination,
    HecDestination,
    SyslogDestination,
    WebhookDestination,
    check_destinations,
    get_destination_kind,
)
from .positions import DeadLetter, ForwardPosition, ForwardPositionStore
from .retry_loop import RetryLoop, RetryOptions
from .senders import (
    EventRenderer,
    EventSender,
    FileSender,
    HecSender,
    SendDelay,
    SendOutcome,
    SendRejection,
    SendSuccess,
    SyslogSender,
    WebhookSender,
)

#: Counting what waits stops here.
MAX_WAITING_COUNTED = 1000


class ForwarderOptions(RetryOptions, frozen=True, kw_only=True):
    """Batch sizes, retries and waits of a forwarder."""

    batch_events: int = 500
    batch_bytes: int = 512 * 1024
    #: How often an event is sent to a receiver that rejects it.
    max_attempts: int = 5


class ForwarderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a forwarder."""

    name: str
    kind: str
    schema: str
    #: The place in the feed of all runs up to which everything was dealt with.
    position: int
    #: Events behind it, counted up to `MAX_WAITING_COUNTED`, and the time of the oldest (0: there is none).
    pending_count: int
    oldest_pending_at: int
    #: When the receiver last took something; 0: never.
    last_success_at: int
    #: What went wrong last, since the last success; empty: nothing.
    last_error: str
    last_error_at: int
    failures: int
    dead_letter_count: int


class RunForwardResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of forwarding one run."""

    run_id: str
    destination: str
    #: Events that the receiver took, and events that the run has.
    sent: int
    total: int
    #: Why not all were sent; empty: they were.
    problem: str = ""


class Forwarder:
    """Sends events to one destination."""

    def __init__(  # noqa: PLR0913 - what it reads, where it writes, where it sends, and how
        self,
        log: EventLog,
        db: Database,
        destination: Destination,
        render: EventRenderer,
        *,
        sender: EventSender,
        options: ForwarderOptions | None = None,
    ) -> None:
        self._log = log
        self._positions = ForwardPositionStore(db, destination.name)
        self._destination = destination
        self._batch_builder = BatchBuilder(log, destination, render)
        self._sender = sender
        self._options = options or ForwarderOptions()
        self._saved_position: ForwardPosition | None = None
        self._prepared: PreparedBatch | None = None
        self._batch_events = self._options.batch_events
        #: How often the event under way was not wanted.
        self._rejections = 0
        self._loop = RetryLoop(self._options)
        self._send_lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """Name of the destination."""
        return self._destination.name

    def wake(self) -> None:
        """Check for new events."""
        self._loop.wake()

    def forget_position(self) -> None:
        """Load the position again before the next batch: another server may have advanced it."""
        self._saved_position = self._prepared = None

    async def run(self) -> None:
        """Send batches until cancelled."""
        await self._loop.run(self._try_next_batch)

    async def _try_next_batch(self) -> float | None:
        try:
            return await self.send_next_batch()
        except Exception:
            self._prepared = None
            raise

    async def send_next_batch(self) -> float | None:
        """Send the next batch once. Return the seconds to wait before the next step; None: there is nothing to send."""
        prepared = self._prepared or await self._prepare_batch()
        if prepared is None:
            return None
        outcome = await self._send(prepared)
        match outcome:
            case SendSuccess():
                return await self._complete_batch(prepared)
            case SendDelay(problem, retry_after_seconds):
                return self._loop.record_failure(problem, retry_after_seconds)
            case SendRejection(problem):
                return await self._handle_rejection(prepared, problem)
            case _:
                assert_never(outcome)

    async def get_status(self) -> ForwarderStatus:
        """Return the position, the backlog and the last problem of the forwarder."""
        saved = self._saved_position or await self._check_log(await self._positions.load())
        pending = await self._log.feed(saved.position, MAX_WAITING_COUNTED)
        return ForwarderStatus(
            name=self.name,
            kind=get_destination_kind(self._destination),
            schema=self._destination.schema,
            position=saved.position,
            pending_count=len(pending),
            oldest_pending_at=_read_event_time(pending[0]) if pending else 0,
            last_success_at=saved.sent_at,
            last_error=self._loop.last_error,
            last_error_at=self._loop.last_error_at,
            failures=self._loop.failures,
            dead_letter_count=await self._positions.count_dead_letters(),
        )

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """Return the events that this destination rejected, by position."""
        return await self._positions.list_dead_letters(after, limit)

    async def retry(self, position: int) -> SendOutcome:
        """Send a dead letter again. It stays one unless it is accepted."""
        found = await self._positions.list_dead_letters(position - 1, 1)
        if not found or found[0].position != position:
            return SendRejection(f"No event at {position} was refused before. Nothing was sent.")
        placed = await self._log.feed(position - 1, 1)
        prepared = await self._batch_builder.build(placed, self._options.batch_bytes, self._options.now())
        if prepared is None or prepared.unreadable:
            return SendRejection(prepared.unreadable[0].problem if prepared else "The log has no such event.")
        outcome = await self._send(prepared)
        if isinstance(outcome, SendSuccess):
            await self._positions.delete_dead_letter(position)
        return outcome

    async def forward_run(self, run_id: str) -> RunForwardResult:
        """Send all events of one run now, whatever was sent before. It stops at the first failure."""
        entries = await self._log.read(run_id)
        result = RunForwardResult(run_id=run_id, destination=self.name, sent=0, total=len(entries))
        if not entries:
            return msgspec.structs.replace(result, problem="There is no such run. Nothing was sent.")
        if not await self._batch_builder.accepts_run(run_id):
            return msgspec.structs.replace(
                result, problem="This destination gets no runs of this agent. Nothing was sent."
            )
        while result.sent < result.total:
            piece = entries[result.sent : result.sent + self._options.batch_events]
            placed = [FeedEntry(entry.seq, entry) for entry in piece]
            prepared = await self._batch_builder.build(placed, self._options.batch_bytes, self._options.now())
            if prepared is None or prepared.unreadable:
                return msgspec.structs.replace(result, problem=prepared.unreadable[0].problem if prepared else "")
            outcome = await self._send(prepared)
            if not isinstance(outcome, SendSuccess):
                return msgspec.structs.replace(result, problem=outcome.problem)
            result = msgspec.structs.replace(result, sent=result.sent + len(prepared.batch.items))
        return result

    async def close(self) -> None:
        """Close the connection to the destination."""
        await self._sender.close()

    async def _send(self, prepared: PreparedBatch) -> SendOutcome:
        if not prepared.batch.items:
            return SendSuccess()
        async with self._send_lock:
            return await self._sender.send(prepared.batch)

    async def _load_position(self) -> ForwardPosition:
        if self._saved_position is None:
            loaded = await self._check_log(await self._positions.load())
            self._saved_position = self._saved_position or loaded  # another process may have advanced it meanwhile
        return self._saved_position

    async def _check_log(self, saved: ForwardPosition) -> ForwardPosition:
        """Return the position, or the start if the log is not the one it was taken from."""
        if saved.position == 0:
            return saved
        page = await self._log.feed(saved.position - 1, 1)
        if page and page[0].position == saved.position and page[0].entry.hash == saved.hash:
            return saved
        self._loop.record_failure("The log is not the one that was forwarded before. It is sent from its beginning.")
        return ForwardPosition(sent_at=saved.sent_at)

    async def _prepare_batch(self) -> PreparedBatch | None:
        """Build the next batch, or the one that was being sent when the last process ended. Save its end."""
        saved = await self._load_position()
        placed = await self._log.feed(saved.position, self._batch_events)
        if saved.sending > saved.position:
            placed = [one for one in placed if one.position <= saved.sending]
        prepared = await self._batch_builder.build(placed, self._options.batch_bytes, self._options.now())
        if prepared is not None and prepared.batch.items:
            await self._save(msgspec.structs.replace(saved, sending=prepared.last.position))
        self._prepared = prepared
        return prepared

    async def _complete_batch(self, prepared: PreparedBatch, dead_letters: tuple[DeadLetter, ...] = ()) -> float:
        saved = await self._load_position()
        was_delivered = prepared.batch.items and not dead_letters
        await self._save(
            ForwardPosition(
                position=prepared.last.position,
                hash=prepared.last.entry.hash,
                sent_at=self._options.now() if was_delivered else saved.sent_at,
            ),
            prepared.unreadable + dead_letters,
        )
        self._prepared, self._rejections = None, 0
        self._batch_events = min(self._batch_events * 2, self._options.batch_events)
        if was_delivered:
            self._loop.record_success()
        return 0.0

    async def _handle_rejection(self, prepared: PreparedBatch, problem: str) -> float:
        """Find the event that is not wanted, give it its tries, and set it aside."""
        items, now = prepared.batch.items, self._options.now()
        if len(items) > 1:
            self._batch_events = len(items) // 2
            self._prepared = None
            await self._save(msgspec.structs.replace(await self._load_position(), sending=0))
            return 0.0
        self._rejections += 1
        wait = self._loop.record_failure(problem)
        if self._rejections < self._options.max_attempts:
            return wait
        self._loop.failures = 0
        dead_letters = tuple(
            DeadLetter(position=item.position, run_id=item.run_id, seq=item.seq, problem=problem, at=now)
            for item in items
        )
        return await self._complete_batch(prepared, dead_letters)

    async def _save(self, position: ForwardPosition, dead_letters: tuple[DeadLetter, ...] = ()) -> None:
        await self._positions.save(position, dead_letters)
        self._saved_position = position


def _read_event_time(placed: FeedEntry) -> int:
    try:
        return msgspec.json.decode(placed.entry.body, type=_EventTime).at
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0


class _EventTime(msgspec.Struct):
    at: int = 0


def create_sender(
    destination: Destination,
    environ: Mapping[str, str],
    *,
    resolve: Resolver = resolve_with_system,
    now: Callable[[], int] = time_ns,
) -> EventSender:
    """Create the sender of a destination. Raise `ConfigurationError` when its secret or certificates are missing."""
    owner = f'The destination "{destination.name}"'
    match destination:
        case HecDestination():
            token = read_secret(owner, destination.token_env, destination.token_file, environ)
            client = SafeClient(destination.network_access, ca_file=destination.ca_file, resolve=resolve)
            return HecSender(destination, token, client, now)
        case WebhookDestination():
            secret = read_secret(owner, destination.secret_env, destination.secret_file, environ)
            client = SafeClient(destination.network_access, ca_file=destination.ca_file, resolve=resolve)
            return WebhookSender(destination, secret, client, now)
        case SyslogDestination():
            verify = create_ssl_context(destination.ca_file) if destination.transport == "tls" else None
            return SyslogSender(destination, verify, resolve)
        case FileDestination():
            return FileSender(destination)
        case _:
            assert_never(destination)


class Forwarders:
    """The forwarders of all destinations."""

    def __init__(  # noqa: PLR0913 - as a forwarder, for several
        self,
        log: EventLog,
        db: Database,
        destinations: Sequence[Destination],
        schemas: Mapping[str, EventRenderer],
        *,
        environ: Mapping[str, str],
        options: ForwarderOptions | None = None,
    ) -> None:
        check_destinations(destinations)
        self._forwarders: dict[str, Forwarder] = {}
        self._tasks: list[asyncio.Task[None]] = []
        for destination in destinations:
            if destination.schema not in schemas:
                raise ConfigurationError(f'The destination "{destination.name}" wants an unknown schema.')
            sender = create_sender(destination, environ)
            render = schemas[destination.schema]
            self._forwarders[destination.name] = Forwarder(log, db, destination, render, sender=sender, options=options)

    def get(self, name: str) -> Forwarder | None:
        """Return a forwarder by name, or None."""
        return self._forwarders.get(name)

    def start(self) -> None:
        """Start sending, each in its own task, where the last sender stopped."""
        for forwarder in self._forwarders.values():
            forwarder.forget_position()
        self._tasks = [
            asyncio.create_task(forwarder.run(), name=f"forward:{name}") for name, forwarder in self._forwarders.items()
        ]

    def wake(self) -> None:
        """Wake every forwarder."""
        for forwarder in self._forwarders.values():
            forwarder.wake()

    async def list_statuses(self) -> list[ForwarderStatus]:
        """List the state of every forwarder."""
        return [await forwarder.get_status() for forwarder in self._forwarders.values()]

    async def pause(self) -> None:
        """Stop sending until the next start; unfinished batches are sent again then, or by another server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for forwarder in self._forwarders.values():
            forwarder.forget_position()

    async def stop(self) -> None:
        """Stop for good."""
        await self.pause()
        for forwarder in self._forwarders.values():
            await forwarder.close()
