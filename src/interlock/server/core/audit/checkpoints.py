"""Signed checkpoints of how far runs are, taken periodically and with every export.

One says, of every run that changed since the last one, how many events it has and the hash of the last. So the cost is
that of what is new, never of what there is. They are numbered and name each other; those that went out with an export
are about that run alone and are in the same order, so everything that the key ever signed is listed. A copy of each
goes to an external file if one is named, which a change of the log and this database does not affect.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import msgspec

from ....audit.checkpoint import (
    ChainHead,
    CheckpointFlaw,
    CheckpointSequence,
    CheckpointStatement,
    UntrustedCheckpoint,
    canonicalize_statement,
    read_statement,
    verify_sequence,
)
from ....audit.erase import matches_record
from ....audit.keys import PublicKey, keys_by_id
from ....audit.proof import SignedVerification, verify_signed
from ....audit.signed_checkpoint import SignedCheckpoint
from ....domain.event import LogEntry, genesis_hash, next_hash
from ....rendering.times import format_rfc3339
from ....storage.event_log import EventLog
from ....storage.removal import RemovedRun, RunRemoval
from ..database.interface import Connection, Database
from .signing import SigningKeys, is_signature

_INSERT_CHECKPOINT = "INSERT INTO checkpoints (number, run_id, position, document, signature) VALUES (?, ?, ?, ?, ?)"
_INSERT_RUN = "INSERT INTO checkpoint_runs (run_id, number, count, head) VALUES (?, ?, ?, ?)"
_SELECT_LAST = "SELECT number, position, document FROM checkpoints ORDER BY number DESC LIMIT 1"
_SELECT_MAX_NUMBER = "SELECT coalesce(max(number), 0) FROM checkpoint_runs"
_SELECT_LAST_OF_RUN = "SELECT document, signature FROM checkpoints WHERE run_id = ? ORDER BY number DESC LIMIT 1"
_SELECT_PAGE = "SELECT document, signature FROM checkpoints WHERE number > ? ORDER BY number LIMIT ?"
_SELECT_HEADS = "SELECT count, head FROM checkpoint_runs WHERE run_id = ?"
_SELECT_NAMING_RUN = (
    "SELECT number, document, signature FROM checkpoints JOIN checkpoint_runs USING (number) "
    "WHERE checkpoint_runs.run_id = ? AND number > ? ORDER BY number LIMIT ?"
)
_SELECT_COPIED = "SELECT coalesce(max(number), 0) FROM checkpoint_copies WHERE path = ?"
_UPSERT_COPIED = """INSERT INTO checkpoint_copies (path, number) VALUES (?, ?)
    ON CONFLICT (path) DO UPDATE SET number = excluded.number"""

#: How many events are read at once, and for one checkpoint at most; how many checkpoints are read at once.
_PAGE, _MAX_EVENTS, _MAX_LISTED = 500, 10_000, 100
_MAX_CONTRADICTIONS = 100

#: How many rows the audit log of the server has, and the hash of the last one; and the hash of that row, if it is
#: there.
ReadAuditLogHead: TypeAlias = Callable[[], Awaitable[tuple[int, bytes]]]
ReadAuditLogHash: TypeAlias = Callable[[int], Awaitable[bytes | None]]

_decode = msgspec.json.Decoder(CheckpointStatement).decode


class CheckpointCheck(msgspec.Struct, frozen=True):
    """The checkpoints, and whether the log matches them."""

    checkpoints: int
    runs: int
    flaw: CheckpointFlaw | None = None
    #: Contradictions with the log, as text; a limited number.
    contradictions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no flaw or contradiction was found."""
        return self.flaw is None and not self.contradictions


class Checkpoints:
    """Takes, stores and verifies signed checkpoints."""

    def __init__(  # noqa: PLR0913 - the parts that it joins
        self,
        db: Database,
        log: EventLog,
        signer: SigningKeys,
        *,
        read_audit_log_head: ReadAuditLogHead | None = None,
        read_audit_log_hash: ReadAuditLogHash | None = None,
        copy_to: str | os.PathLike[str] | None = None,
        is_copying: Callable[[], bool] = lambda: True,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._db, self._log, self._signer, self._now = db, log, signer, now
        self._audit_log_head, self._audit_log_hash = read_audit_log_head, read_audit_log_hash
        self._copy_to = None if copy_to is None else Path(copy_to)
        #: Whether this server writes the copy: where several share a database, one of them does.
        self._is_copying = is_copying
        self._lock = asyncio.Lock()
        #: Why the copy outside lags behind; empty: it does not. The next checkpoint tries again.
        self.copy_problem = ""

    async def take(self) -> SignedCheckpoint | None:
        """Sign what changed since the last checkpoint; None when nothing did, or another server signed it meanwhile."""
        async with self._lock:
            last = await self._load_last("")
            statement = None if last is None else _decode_statement(last)
            position = statement.position if statement is not None and await self._is_from_this_log(statement) else 0
            audit_log_head = await self._read_audit_log_head()
            has_changed, taken = statement is None or statement.journal != audit_log_head, None
            while True:
                heads, position = await self._collect_heads(position)
                if not heads and (taken or not has_changed or audit_log_head is None):
                    break
                insert = partial(self._sign_next, last, heads, position, audit_log_head)
                signed = await self._db.run(insert)
                if signed is None:
                    return taken
                last = taken = signed
            await self._copy_to_file()
            return taken

    async def take_for_run(self, run_id: str, entries: Sequence[LogEntry] | None = None) -> SignedCheckpoint | None:
        """Sign how far one run is, for an export of these entries. The same state is signed once.

        None when there is nothing to sign: no such run, or events that are not what was written or signed before.
        """
        if entries is None:
            entries = await self._log.read(run_id)
        if not entries or not await asyncio.to_thread(_is_chain, entries, run_id):
            return None
        return await self.take_for_chain(run_id, [entry.hash for entry in entries])

    async def take_for_chain(self, run_id: str, hashes: Sequence[bytes]) -> SignedCheckpoint | None:
        """Sign like `take_for_run`, for a chain that is already verified: the hash of each event, at least one."""
        head = ChainHead(len(hashes), hashes[-1].hex())
        async with self._lock:
            signed_heads = await self._db.read(
                lambda connection: connection.execute(_SELECT_HEADS, (run_id,)).fetchall()
            )
            if not all(_matches_hashes(ChainHead(*row), hashes) for row in signed_heads):
                return None
            last = await self._load_last(run_id)
            statement = None if last is None else _decode_statement(last)
            if (
                statement is None
                or statement.runs.get(run_id) != head
                or statement.key != self._signer.get_current_key().key_id
            ):
                last = await self._db.run(partial(self._sign_and_insert, run_id, {run_id: head}, None, None))
            await self._copy_to_file()
            return last

    async def verify_run(self, run_id: str) -> SignedVerification:
        """Verify the events of a run against the chain and everything signed about them."""
        entries = await self._log.read(run_id)
        keys = keys_by_id(await asyncio.to_thread(self._signer.list_keys))
        statements = (
            _treat_unreadable_as_forged(read_statement(signed, keys, is_signature))
            for signed in self._iterate_naming_run(run_id)
        )
        return await asyncio.to_thread(verify_signed, entries, run_id, statements)

    async def verify(self) -> CheckpointCheck:
        """Verify that all checkpoints are present, and that the log has every event that they name. Reads all of
        them.
        """
        keys = keys_by_id(await asyncio.to_thread(self._signer.list_keys))
        (max_number,) = await self._db.read(lambda connection: connection.execute(_SELECT_MAX_NUMBER).fetchone())
        removed = await self._load_removed()
        progress, runs, contradictions = CheckpointSequence(), set[str](), list[str]()
        while page := await self._db.read(partial(_select_page, after=progress.number, limit=_MAX_LISTED)):
            progress, statements = await asyncio.to_thread(_verify_page, progress, page, keys)
            for statement in statements:
                runs |= statement.runs.keys()
                contradictions += await self._find_contradictions(statement, removed)
            if progress.flaw is not None:
                break
        flaw = progress.flaw
        if flaw is None and progress.number < max_number:
            flaw = CheckpointFlaw(
                progress.number + 1, f"checkpoint {progress.number + 1} is missing: there were {max_number}"
            )
        return CheckpointCheck(
            progress.number, len(runs), flaw, tuple(dict.fromkeys(contradictions))[:_MAX_CONTRADICTIONS]
        )

    async def _load_removed(self) -> dict[str, RemovedRun]:
        """Return the records of runs that were archived or erased."""
        records = await self._log.removed_runs() if isinstance(self._log, RunRemoval) else []
        return {each.run_id: each for each in records}

    async def _find_contradictions(
        self, statement: CheckpointStatement, removed: Mapping[str, RemovedRun]
    ) -> Sequence[str]:
        found = list[str]()
        if statement.journal is not None and statement.journal.count and self._audit_log_hash is not None:
            row = await self._audit_log_hash(statement.journal.count)
            if row is None or row.hex() != statement.journal.head:
                found.append(f"row {statement.journal.count} of the journal is not the one that was signed")
        for run_id, head in statement.runs.items():
            entries = await self._log.read(run_id, head.count - 2, 1) if head.count > 0 else []
            if not entries and run_id in removed:
                if not matches_record(removed[run_id], head):
                    found.append(f"{run_id}: the record of the removed run is not what was signed")
            elif not entries:
                found.append(f"{run_id}: {head.count} events were signed, and event {head.count - 1} is not there")
            elif entries[0].hash.hex() != head.head:
                found.append(f"{run_id}: event {head.count - 1} is not the one that was signed")
        return found

    async def _is_from_this_log(self, statement: CheckpointStatement) -> bool:
        """Return True if the statement was taken from this log. Else the log is read from the beginning."""
        if statement.position == 0:
            return True
        page = await self._log.feed(statement.position - 1, 1)
        if not page or page[0].position != statement.position:
            return False
        entry = page[0].entry
        return not statement.runs or statement.runs.get(entry.run_id) == ChainHead(entry.seq + 1, entry.hash.hex())

    async def _collect_heads(self, position: int) -> tuple[dict[str, ChainHead], int]:
        heads: dict[str, ChainHead] = {}
        for _ in range(_MAX_EVENTS // _PAGE):
            page = await self._log.feed(position, _PAGE)
            for placed in page:
                heads[placed.entry.run_id] = ChainHead(placed.entry.seq + 1, placed.entry.hash.hex())
                position = placed.position
            if len(page) < _PAGE:
                break
        return heads, position

    def _sign_next(
        self,
        last: SignedCheckpoint | None,
        heads: dict[str, ChainHead],
        position: int,
        audit_log_head: ChainHead | None,
        connection: Connection,
    ) -> SignedCheckpoint | None:
        """Sign what follows on `last`; None if that is not the last one any more."""
        row = connection.execute(_SELECT_LAST_OF_RUN, ("",)).fetchone()
        if (None if row is None else SignedCheckpoint(*row)) != last:
            return None
        return self._sign_and_insert("", heads, position, audit_log_head, connection)

    def _sign_and_insert(
        self,
        run_id: str,
        heads: dict[str, ChainHead],
        position: int | None,
        audit_log_head: ChainHead | None,
        connection: Connection,
    ) -> SignedCheckpoint:
        """Sign in one transaction with the choice of the key: a later signature never uses an older key."""
        number, last_position, last_document = connection.execute(_SELECT_LAST).fetchone() or (0, 0, b"")
        (max_number,) = connection.execute(
            _SELECT_MAX_NUMBER
        ).fetchone()  # more: some were taken away, and their numbers stay missing
        key = self._signer.get_current_key(connection)
        statement = CheckpointStatement(
            number=max(number, max_number) + 1,
            at=format_rfc3339(self._now(), 6),
            key=key.key_id,
            previous=sha256(last_document).hexdigest() if last_document else "",
            position=last_position if position is None else position,
            runs=heads,
            journal=audit_log_head,
        )
        content = canonicalize_statement(statement)
        signed = SignedCheckpoint(content, key.sign(content))
        connection.execute(
            _INSERT_CHECKPOINT, (statement.number, run_id, statement.position, content, signed.signature)
        )
        rows = [(name, statement.number, head.count, head.head) for name, head in heads.items()]
        connection.executemany(_INSERT_RUN, rows)
        return signed

    async def _load_last(self, run_id: str) -> SignedCheckpoint | None:
        row = await self._db.read(lambda connection: connection.execute(_SELECT_LAST_OF_RUN, (run_id,)).fetchone())
        return None if row is None else SignedCheckpoint(*row)

    def _iterate_naming_run(self, run_id: str) -> Iterator[SignedCheckpoint]:
        number = 0
        while rows := self._db.read_now(partial(_select_naming_run, run_id=run_id, after=number)):
            number = rows[-1][0]
            yield from (SignedCheckpoint(document, signature) for _, document, signature in rows)

    async def _read_audit_log_head(self) -> ChainHead | None:
        if self._audit_log_head is None:
            return None
        count, head = await self._audit_log_head()
        return ChainHead(count, head.hex())

    async def _copy_to_file(self) -> None:
        """Copy new checkpoints to the file in order, each at least once. What fails is copied with the next one."""
        if self._copy_to is None or not self._is_copying():
            return
        path = str(self._copy_to.absolute())
        try:
            while await asyncio.to_thread(self._db.run_now, partial(_copy_page, path=path)):
                pass
            self.copy_problem = ""
        except OSError as error:
            self.copy_problem = f"Checkpoints cannot be copied to {path}: {error.strerror or error}."

    # The last one, because its name hides another one from the types above.
    async def list(self, after: int = 0, limit: int = _MAX_LISTED) -> Sequence[SignedCheckpoint]:
        """Return those with a higher number, in order."""
        return await self._db.read(partial(_select_page, after=after, limit=limit))


def _select_page(connection: Connection, after: int, limit: int) -> list[SignedCheckpoint]:
    rows = connection.execute(_SELECT_PAGE, (after, min(max(limit, 0), _MAX_LISTED)))
    return [SignedCheckpoint(*row) for row in rows]


def _select_naming_run(connection: Connection, run_id: str, after: int) -> list[tuple[int, bytes, bytes]]:
    return connection.execute(_SELECT_NAMING_RUN, (run_id, after, _MAX_LISTED)).fetchall()


def _copy_page(connection: Connection, path: str) -> bool:
    """Copy a page; its position is saved last. Return True if there may be more."""
    (copied,) = connection.execute(_SELECT_COPIED, (path,)).fetchone()
    page = _select_page(connection, copied, _MAX_LISTED)
    if page:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab") as file:
            file.writelines(signed.line + b"\n" for signed in page)
            file.flush()
            os.fsync(descriptor)
        connection.execute(_UPSERT_COPIED, (path, _decode(page[-1].document).number))
    return len(page) == _MAX_LISTED


def _verify_page(
    progress: CheckpointSequence, page: Sequence[SignedCheckpoint], keys: Mapping[str, PublicKey]
) -> tuple[CheckpointSequence, list[CheckpointStatement]]:
    read = [(signed, read_statement(signed, keys, is_signature)) for signed in page]
    return verify_sequence(progress, read, keys)


def _decode_statement(signed: SignedCheckpoint) -> CheckpointStatement | None:
    """Decode a statement. Return None if it was replaced: another one is made, and `verify` finds this one."""
    try:
        return _decode(signed.document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _treat_unreadable_as_forged(
    read: CheckpointStatement | UntrustedCheckpoint,
) -> CheckpointStatement | UntrustedCheckpoint:
    """Treat an unreadable checkpoint as forged: everything stored here was signed here."""
    return (
        UntrustedCheckpoint("forged", read.message)
        if isinstance(read, UntrustedCheckpoint) and read.problem == "unreadable"
        else read
    )


def _is_chain(entries: Sequence[LogEntry], run_id: str) -> bool:
    head = genesis_hash(run_id)
    for place, entry in enumerate(entries):
        if entry.seq != place or entry.run_id != run_id or next_hash(head, entry.body) != entry.hash:
            return False
        head = entry.hash
    return True


def _matches_hashes(head: ChainHead, hashes: Sequence[bytes]) -> bool:
    return 0 < head.count <= len(hashes) and hashes[head.count - 1].hex() == head.head
