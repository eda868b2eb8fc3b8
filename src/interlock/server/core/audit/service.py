"""Audit functions: exports, proofs, forwarding, and the audit log of the server itself.

Every export and every forwarded run is recorded in the audit log with who requested it.

Events of a run are read and verified a page at a time: the memory needed is one page, and the hashes of the events.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from time import monotonic

import msgspec

from ....audit.export import format_event_line
from ....audit.keys import PublicKey
from ....audit.proof import SignedVerification
from ....audit.schemas import MEDIA_TYPES, SCHEMAS, ExportFormat, SchemaName, export_run
from ....audit.signed_checkpoint import SignedCheckpoint
from ....audit.verify import verify
from ....domain.errors import LogCorruptError
from ....domain.event import LogEntry, genesis_hash, next_hash
from ....storage.event_log import EventLog
from ..audit_sinks.forwarder import Forwarder, Forwarders, ForwarderStatus, RunForwardResult
from ..audit_sinks.positions import DeadLetter
from ..audit_sinks.senders import SendDelay, SendSuccess
from ..errors import ConflictError, UnavailableError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from .audit_log import AuditLog, AuditLogCheck, AuditLogEntry
from .checkpoints import CheckpointCheck, Checkpoints
from .signing import SigningKeys

PAGE_EVENTS = 200
PIECE_BYTES = 64 * 1024


class ChainReader:
    """The progress of reading a run, and whether its events form a valid chain."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        #: Of each event.
        self.hashes: list[bytes] = []
        self.is_intact = True
        self._head = genesis_hash(run_id)

    def feed(self, page: Sequence[LogEntry]) -> None:
        """Read a page. Raise `LogCorruptError` for an event that would not be one line of an export."""
        for entry in page:
            format_event_line(entry)
            is_expected = entry.seq == len(self.hashes) and entry.run_id == self.run_id
            if not is_expected or next_hash(self._head, entry.body) != entry.hash:
                self.is_intact = False
            self._head = entry.hash
            self.hashes.append(entry.hash)


async def read_chain(log: EventLog, run_id: str) -> ChainReader:
    """Read a run up to its current last event."""
    reader, last_seq = ChainReader(run_id), -1
    while page := await log.read(run_id, last_seq, PAGE_EVENTS):
        await asyncio.to_thread(reader.feed, page)
        last_seq = page[-1].seq
    return reader


class _EntryQueue:
    """A queue of events between the log and the threads that format them."""

    def __init__(self) -> None:
        self.is_complete = False
        self._entries: deque[LogEntry] = deque()

    @property
    def can_continue(self) -> bool:
        return bool(self._entries) or self.is_complete

    def add(self, page: Sequence[LogEntry], is_complete: bool) -> None:
        self._entries += page
        self.is_complete = is_complete

    def __iter__(self) -> Iterator[LogEntry]:
        while self._entries:
            yield self._entries.popleft()


async def stream_export(
    log: EventLog, run_id: str, count: int, write: Callable[[Iterable[LogEntry]], Iterator[bytes]]
) -> AsyncGenerator[bytes]:
    """Yield the first `count` events as `write` formats them, in chunks. Threads write and never wait: waiting in one
    for the log, which needs one itself, could deadlock.
    """
    queue, last_seq, remaining = _EntryQueue(), -1, count
    lines = write(queue)
    while not queue.is_complete:
        page = await log.read(run_id, last_seq, min(remaining, PAGE_EVENTS)) if remaining else []
        remaining -= len(page)
        queue.add(page, is_complete=not page or not remaining)
        last_seq = page[-1].seq if page else last_seq
        while piece := await asyncio.to_thread(_join_lines, lines, queue):
            yield piece


def _join_lines(lines: Iterator[bytes], queue: _EntryQueue) -> bytes:
    found, size = list[bytes](), 0
    while size < PIECE_BYTES and queue.can_continue and (line := next(lines, None)) is not None:
        found.append(line)
        size += len(line)
    return b"".join(found)


_MAX_FLAWS = 100
#: Time limit of one check of everything.
CHECK_SECONDS = 60.0
#: Of sending dead letters again: how long the last one may begin after the first, and how many.
RETRY_SECONDS = 20.0
MAX_RETRIED = 1_000


class RunExport(msgspec.Struct, frozen=True, kw_only=True):
    """An export of a run as a stream."""

    media_type: str
    file_name: str
    count: int
    #: The checkpoint that ends it, where its schema has a place for one.
    signed: SignedCheckpoint | None
    chunks: AsyncGenerator[bytes]


class RunFlaw(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in the events of a run."""

    run_id: str
    seq: int
    problem: str
    message: str


class ServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying everything that was written and signed."""

    ok: bool
    #: False: it took too long, and only so many runs were looked at.
    finished: bool
    runs: int
    events: int
    flaws: tuple[RunFlaw, ...]
    checkpoints: CheckpointCheck
    audit_log: AuditLogCheck


class DeadLetterRetry(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending dead letters again."""

    destination: str
    #: How many the receiver took, and how many dead letters are left.
    sent: int
    left: int
    #: The last thing that went wrong; empty: nothing.
    problem: str


class AuditService:
    """Exports, verifies and forwards runs for auditors."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        guard: AccessGuard,
        log: EventLog,
        audit_log: AuditLog,
        checkpoints: Checkpoints,
        signer: SigningKeys,
        forwarders: Forwarders,
        host: str = "",
    ) -> None:
        self._guard = guard
        self._log = log
        self._audit_log = audit_log
        self._checkpoints = checkpoints
        self._signer = signer
        self._forwarders = forwarders
        self._host = host
        self._check_lock = asyncio.Lock()

    async def export_run(
        self, principal: Principal, run_id: str, schema: SchemaName = "interlock", form: ExportFormat | None = None
    ) -> RunExport:
        """Export the whole log of a run. In the schema `interlock` it can be verified, and is signed. In the schema
        `interlock` it can be verified, and is signed.

        It is read twice, a page at a time: before the first byte is sent, so that an export is complete or fails; and
        then as fast as it is taken."""
        row = await self._guard.get_run(principal, run_id, Operation.EXPORT_RUN)
        chosen, count, signed = form or SCHEMAS[schema].form, row.last_seq + 1, None
        if schema == "interlock":
            chain = await self._read_chain(run_id)
            count = len(chain.hashes)
            signed = await self._checkpoints.take_for_chain(run_id, chain.hashes) if chain.is_intact and count else None
        detail = {"schema": schema, "format": chosen, "events": str(count)}
        await self._audit_log.add(principal.name, "audit.exported", run_id, detail=detail)
        extension = "json" if chosen == "json" else "ndjson" if SCHEMAS[schema].is_json else "log"
        return RunExport(
            media_type=MEDIA_TYPES[chosen],
            file_name=f"{_to_file_name(run_id)}.{schema}.{extension}",
            count=count,
            signed=signed,
            chunks=stream_export(
                self._log,
                run_id,
                count,
                lambda entries: export_run(entries, schema, chosen, signed=signed, host=self._host),
            ),
        )

    async def verify_run(self, principal: Principal, run_id: str) -> SignedVerification:
        """Verify the hash chain and the checkpoint of a run."""
        await self._guard.get_run(principal, run_id, Operation.VERIFY_RUN)
        return await self._checkpoints.verify_run(run_id)

    async def verify_all(self, principal: Principal) -> ServerCheck:
        """Verify every run, the audit log, and all signatures. One check at a time."""
        await self._guard.check(principal, Operation.VERIFY_SERVER)
        if self._check_lock.locked():
            raise UnavailableError(
                "already_checking", "Everything is being checked right now. Try again when that is done."
            )
        async with self._check_lock:
            return await self._check_all()

    async def forward_run(self, principal: Principal, run_id: str, destination: str) -> RunForwardResult:
        """Send all events of a run to a configured destination now."""
        await self._guard.get_run(principal, run_id, Operation.FORWARD_RUN)
        result = await self._get_forwarder(destination).forward_run(run_id)
        await self._audit_log.add(
            principal.name,
            "audit.forwarded",
            run_id,
            outcome="failed" if result.problem else "done",
            detail={"destination": destination, "sent": str(result.sent), "total": str(result.total)},
        )
        return result

    async def list_forwarders(self, principal: Principal) -> list[ForwarderStatus]:
        """List the state of every audit sink."""
        await self._guard.check(principal, Operation.READ_FORWARDERS)
        return await self._forwarders.list_statuses()

    async def list_dead_letters(
        self, principal: Principal, destination: str, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """List the events that a destination rejected, by their place in the log."""
        await self._guard.check(principal, Operation.READ_FORWARDERS)
        return await self._get_forwarder(destination).list_dead_letters(after, limit)

    async def retry_dead_letters(self, principal: Principal, destination: str, position: int = 0) -> DeadLetterRetry:
        """Send one dead letter again, or all of them. It stops at a receiver that cannot answer now, and when it takes
        too long.
        """
        await self._guard.check(principal, Operation.RETRY_DEAD_LETTERS)
        forwarder = self._get_forwarder(destination)
        if position and not await _has_dead_letter(forwarder, position):
            raise not_found_error("dead_letter", str(position))
        result = await _retry(forwarder, position)
        target = f"{destination}, event {position}" if position else destination
        detail = {"sent": str(result.sent), "left": str(result.left), "problem": result.problem}
        outcome = "failed" if result.problem else "done"
        await self._audit_log.add(principal.name, "audit.dead_letters_retried", target, outcome=outcome, detail=detail)
        return result

    def _get_forwarder(self, destination: str) -> Forwarder:
        forwarder = self._forwarders.get(destination)
        if forwarder is None:
            raise not_found_error("destination", destination)
        return forwarder

    async def list_checkpoints(
        self, principal: Principal, after: int = 0, limit: int = 100
    ) -> Sequence[SignedCheckpoint]:
        """List signed checkpoints."""
        await self._guard.check(principal, Operation.READ_CHECKPOINTS)
        return await self._checkpoints.list(after, limit)

    async def list_keys(self) -> tuple[PublicKey, ...]:
        """Return the public keys that signatures are checked with, the oldest first."""
        return await asyncio.to_thread(self._signer.list_keys)

    async def list_audit_log(self, principal: Principal, after: int = 0, limit: int = 100) -> tuple[AuditLogEntry, ...]:
        """List entries of the audit log."""
        await self._guard.check(principal, Operation.READ_JOURNAL)
        return await self._audit_log.read(after, limit)

    async def _read_chain(self, run_id: str) -> ChainReader:
        try:
            return await read_chain(self._log, run_id)
        except LogCorruptError as error:
            raise ConflictError("log_damaged", f"{error}. Nothing was exported; verify the run.") from None

    async def _check_all(self) -> ServerCheck:
        runs = events = 0
        flaws: list[RunFlaw] = []
        finished, end = True, monotonic() + CHECK_SECONDS
        for run_id in await self._log.run_ids():
            if monotonic() > end:
                finished = False
                break
            entries = await self._log.read(run_id)
            audit = await asyncio.to_thread(verify, entries, run_id)
            runs, events = runs + 1, events + len(entries)
            if audit.flaw is not None and len(flaws) < _MAX_FLAWS:
                flaw = audit.flaw
                flaws.append(RunFlaw(run_id=run_id, seq=flaw.seq, problem=flaw.problem, message=flaw.message))
        checkpoints, audit_log = await self._checkpoints.verify(), await self._audit_log.verify()
        return ServerCheck(
            ok=not flaws and checkpoints.ok and not audit_log.problem,
            finished=finished,
            runs=runs,
            events=events,
            flaws=tuple(flaws),
            checkpoints=checkpoints,
            audit_log=audit_log,
        )


async def _has_dead_letter(forwarder: Forwarder, position: int) -> bool:
    found = await forwarder.list_dead_letters(position - 1, 1)
    return bool(found) and found[0].position == position


async def _retry(forwarder: Forwarder, position: int) -> DeadLetterRetry:
    """Send the dead letter at a position again; 0: all of them."""
    sent, problem, end = 0, "", monotonic() + RETRY_SECONDS
    for letter in await forwarder.list_dead_letters(max(0, position - 1), 1 if position else MAX_RETRIED):
        outcome = await forwarder.retry(letter.position)
        if isinstance(outcome, SendSuccess):
            sent += 1
        else:
            problem = outcome.problem
        if isinstance(outcome, SendDelay) or monotonic() > end:
            break
    status = await forwarder.get_status()
    return DeadLetterRetry(destination=forwarder.name, sent=sent, left=status.dead_letter_count, problem=problem)


def _to_file_name(run_id: str) -> str:
    """Convert a run id to a part of a file name."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in run_id)
    return kept[:100].lstrip(".") or "run"
