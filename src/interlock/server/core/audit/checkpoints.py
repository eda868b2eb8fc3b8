"""Signed checkpoints: from time to time, and with every export, it is signed how far runs are.

One says, of every run that changed since the last one, how many events it has and the hash of the last. So the cost is
that of what is new, never of what there is. They are numbered and name each other; those that went out with an export
are about that run alone and are in the same order, so everything that the key ever signed is listed. A copy of each
goes to a file outside if one is named: whoever changes the log and this database cannot change that.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import msgspec

from ....audit.checkpoint import CheckpointFlaw, Doubt, Followed, Head, Statement, canonical, follow, read_statement
from ....audit.keys import PublicKey, keys_by_id
from ....audit.proof import Proof, prove
from ....audit.signed_line import SignedCheckpoint
from ....audit.times import utc
from ....domain.chain import Entry, genesis, link
from ....storage.event_log import EventLog
from ..database import Database
from .signing import Signer, is_signature

TABLES = (
    # `run_id` is empty, but for those that are about one run alone.
    "CREATE TABLE IF NOT EXISTS checkpoints (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, "
    "position INTEGER NOT NULL, document BLOB NOT NULL, signature BLOB NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS checkpoints_by_run ON checkpoints (run_id, number)",
    "CREATE TABLE IF NOT EXISTS checkpoint_runs (run_id TEXT NOT NULL, number INTEGER NOT NULL, "
    "count INTEGER NOT NULL, head TEXT NOT NULL, PRIMARY KEY (run_id, number)) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS checkpoint_runs_by_number ON checkpoint_runs (number)",
    "CREATE TABLE IF NOT EXISTS checkpoint_copies (path TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT",
)
_INSERT = "INSERT INTO checkpoints (number, run_id, position, document, signature) VALUES (?, ?, ?, ?, ?)"
_INSERT_RUN = "INSERT INTO checkpoint_runs (run_id, number, count, head) VALUES (?, ?, ?, ?)"
_LAST = "SELECT number, position, document FROM checkpoints ORDER BY number DESC LIMIT 1"
_NAMED = "SELECT coalesce(max(number), 0) FROM checkpoint_runs"
_LAST_OF = "SELECT document, signature FROM checkpoints WHERE run_id = ? ORDER BY number DESC LIMIT 1"
_LIST = "SELECT document, signature FROM checkpoints WHERE number > ? ORDER BY number LIMIT ?"
_HEADS_OF = "SELECT count, head FROM checkpoint_runs WHERE run_id = ?"
_ABOUT = (
    "SELECT number, document, signature FROM checkpoints JOIN checkpoint_runs USING (number) "
    "WHERE checkpoint_runs.run_id = ? AND number > ? ORDER BY number LIMIT ?"
)
_COPIED = "SELECT coalesce(max(number), 0) FROM checkpoint_copies WHERE path = ?"
_SET_COPIED = "INSERT OR REPLACE INTO checkpoint_copies (path, number) VALUES (?, ?)"

#: How many events are read at once, and for one checkpoint at most; how many checkpoints are read at once.
_PAGE, _MAX_EVENTS, _MAX_LISTED = 500, 10_000, 100
_MAX_CONTRADICTIONS = 100

#: How many rows the journal of the server has, and the hash of the last one; and the hash of that row, if it is there.
JournalHead: TypeAlias = Callable[[], Awaitable[tuple[int, bytes]]]
JournalHash: TypeAlias = Callable[[int], Awaitable[bytes | None]]

_decode = msgspec.json.Decoder(Statement).decode


class Verified(msgspec.Struct, frozen=True):
    """What there is of checkpoints, and whether the log is what they say."""

    checkpoints: int
    runs: int
    flaw: CheckpointFlaw | None = None
    #: What the log says otherwise, in words; at most so many.
    contradictions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.flaw is None and not self.contradictions


class Checkpoints:
    def __init__(  # noqa: PLR0913 - the parts that it joins
        self,
        db: Database,
        log: EventLog,
        signer: Signer,
        *,
        journal: JournalHead | None = None,
        journal_hash: JournalHash | None = None,
        copy_to: str | os.PathLike[str] | None = None,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._db, self._log, self._signer, self._now = db, log, signer, now
        self._journal, self._journal_hash = journal, journal_hash
        self._copy_to = None if copy_to is None else Path(copy_to)
        self._taking = asyncio.Lock()
        #: Why the copy outside lags behind; empty: it does not. The next checkpoint tries again.
        self.copy_problem = ""

    async def take(self) -> SignedCheckpoint | None:
        """Sign what changed since the last time; None when nothing did."""
        async with self._taking:
            last = await self._last_of("")
            said = None if last is None else _said(last)
            position = said.position if said is not None and await self._goes_on(said) else 0
            journal = await self._journal_head()
            changed, taken = said is None or said.journal != journal, None
            while True:
                heads, position = await self._heads_after(position)
                if not heads and (taken or not changed or journal is None):
                    break
                taken = await self._db.run(partial(self._append, "", heads, position, journal))
            await self._copy_outside()
            return taken

    async def of_run(self, run_id: str, entries: Sequence[Entry] | None = None) -> SignedCheckpoint | None:
        """Sign how far one run is: for an export, whose entries are given. The same state is signed once.

        None when there is nothing to sign: no such run, or events that are not what was written or signed before.
        """
        if entries is None:
            entries = await self._log.read(run_id)
        if not entries or not await asyncio.to_thread(_is_chain, entries, run_id):
            return None
        return await self.of_chain(run_id, [entry.hash for entry in entries])

    async def of_chain(self, run_id: str, hashes: Sequence[bytes]) -> SignedCheckpoint | None:
        """As `of_run`, for whoever found that its events follow from each other: the hash of each, at least one."""
        head = Head(len(hashes), hashes[-1].hex())
        async with self._taking:
            before = await self._db.run(lambda connection: connection.execute(_HEADS_OF, (run_id,)).fetchall())
            if not all(_agrees(Head(*row), hashes) for row in before):
                return None
            last = await self._last_of(run_id)
            said = None if last is None else _said(last)
            if said is None or said.runs.get(run_id) != head or said.key != self._signer.current().key_id:
                last = await self._db.run(partial(self._append, run_id, {run_id: head}, None, None))
            await self._copy_outside()
            return last

    async def verify_run(self, run_id: str) -> Proof:
        """Are its events what was written, and what was ever signed about them?"""
        entries = await self._log.read(run_id)
        keys = keys_by_id(self._signer.keys())
        said = (_own(read_statement(signed, keys, is_signature)) for signed in self._about(run_id))
        return await asyncio.to_thread(prove, entries, run_id, said)

    async def verify(self) -> Verified:
        """Are the checkpoints all there, and does the log have every event that they name? Reads all of them."""
        keys = keys_by_id(self._signer.keys())
        (named,) = await self._db.run(lambda connection: connection.execute(_NAMED).fetchone())
        so_far, runs, wrong = Followed(), set[str](), list[str]()
        while page := await self._db.run(partial(_listed, after=so_far.number, limit=_MAX_LISTED)):
            so_far, statements = await asyncio.to_thread(_follow, so_far, page, keys)
            for statement in statements:
                runs |= statement.runs.keys()
                wrong += await self._contradictions(statement)
            if so_far.flaw is not None:
                break
        flaw = so_far.flaw
        if flaw is None and so_far.number < named:
            flaw = CheckpointFlaw(so_far.number + 1, f"checkpoint {so_far.number + 1} is missing: there were {named}")
        return Verified(so_far.number, len(runs), flaw, tuple(dict.fromkeys(wrong))[:_MAX_CONTRADICTIONS])

    async def _contradictions(self, said: Statement) -> Sequence[str]:
        found = list[str]()
        if said.journal is not None and said.journal.count and self._journal_hash is not None:
            row = await self._journal_hash(said.journal.count)
            if row is None or row.hex() != said.journal.head:
                found.append(f"row {said.journal.count} of the journal is not the one that was signed")
        for run_id, head in said.runs.items():
            there = await self._log.read(run_id, head.count - 2, 1) if head.count > 0 else []
            if not there:
                found.append(f"{run_id}: {head.count} events were signed, and event {head.count - 1} is not there")
            elif there[0].hash.hex() != head.head:
                found.append(f"{run_id}: event {head.count - 1} is not the one that was signed")
        return found

    async def _goes_on(self, said: Statement) -> bool:
        """Is the log still the one that it was taken from? Else it is read from the beginning."""
        if said.position == 0:
            return True
        there = await self._log.feed(said.position - 1, 1)
        if not there or there[0].position != said.position:
            return False
        entry = there[0].entry
        return not said.runs or said.runs.get(entry.run_id) == Head(entry.seq + 1, entry.hash.hex())

    async def _heads_after(self, position: int) -> tuple[dict[str, Head], int]:
        heads: dict[str, Head] = {}
        for _ in range(_MAX_EVENTS // _PAGE):
            page = await self._log.feed(position, _PAGE)
            for placed in page:
                heads[placed.entry.run_id] = Head(placed.entry.seq + 1, placed.entry.hash.hex())
                position = placed.position
            if len(page) < _PAGE:
                break
        return heads, position

    def _append(
        self,
        run_id: str,
        heads: dict[str, Head],
        position: int | None,
        journal: Head | None,
        connection: sqlite3.Connection,
    ) -> SignedCheckpoint:
        """In one transaction, the choice of the key too: whoever signs later does so with a key that is no older."""
        number, last_position, document = connection.execute(_LAST).fetchone() or (0, 0, b"")
        (named,) = connection.execute(_NAMED).fetchone()  # more: some were taken away, and their numbers stay missing
        key = self._signer.current()
        said = Statement(
            number=max(number, named) + 1,
            at=utc(self._now(), 6),
            key=key.key_id,
            previous=sha256(document).hexdigest() if document else "",
            position=last_position if position is None else position,
            runs=heads,
            journal=journal,
        )
        written = canonical(said)
        signed = SignedCheckpoint(written, key.sign(written))
        connection.execute(_INSERT, (said.number, run_id, said.position, written, signed.signature))
        rows = [(name, said.number, head.count, head.head) for name, head in heads.items()]
        connection.executemany(_INSERT_RUN, rows)
        return signed

    async def _last_of(self, run_id: str) -> SignedCheckpoint | None:
        row = await self._db.run(lambda connection: connection.execute(_LAST_OF, (run_id,)).fetchone())
        return None if row is None else SignedCheckpoint(*row)

    def _about(self, run_id: str) -> Iterator[SignedCheckpoint]:
        number = 0
        while rows := self._db.run_now(partial(_about, run_id=run_id, after=number)):
            number = rows[-1][0]
            yield from (SignedCheckpoint(document, signature) for _, document, signature in rows)

    async def _journal_head(self) -> Head | None:
        if self._journal is None:
            return None
        count, head = await self._journal()
        return Head(count, head.hex())

    async def _copy_outside(self) -> None:
        """At least once each, in order; what could not be copied now is copied with the next one."""
        if self._copy_to is None:
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
        """Those with a higher number, in order."""
        return await self._db.run(partial(_listed, after=after, limit=limit))


def _listed(connection: sqlite3.Connection, after: int, limit: int) -> list[SignedCheckpoint]:
    rows = connection.execute(_LIST, (after, min(max(limit, 0), _MAX_LISTED)))
    return [SignedCheckpoint(*row) for row in rows]


def _about(connection: sqlite3.Connection, run_id: str, after: int) -> list[tuple[int, bytes, bytes]]:
    return connection.execute(_ABOUT, (run_id, after, _MAX_LISTED)).fetchall()


def _copy_page(connection: sqlite3.Connection, path: str) -> bool:
    """True when there may be more. The position is kept with the copy, in one transaction that comes last."""
    (copied,) = connection.execute(_COPIED, (path,)).fetchone()
    page = _listed(connection, copied, _MAX_LISTED)
    if page:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab") as file:
            file.writelines(signed.line + b"\n" for signed in page)
            file.flush()
            os.fsync(descriptor)
        connection.execute(_SET_COPIED, (path, _decode(page[-1].document).number))
    return len(page) == _MAX_LISTED


def _follow(
    so_far: Followed, page: Sequence[SignedCheckpoint], keys: Mapping[str, PublicKey]
) -> tuple[Followed, list[Statement]]:
    read = [(signed, read_statement(signed, keys, is_signature)) for signed in page]
    return follow(so_far, read, keys)


def _said(signed: SignedCheckpoint) -> Statement | None:
    """None: it is not what was written. Another one is made, and `verify` finds this one."""
    try:
        return _decode(signed.document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _own(read: Statement | Doubt) -> Statement | Doubt:
    """In here is what was signed here: what cannot be read was put in its place."""
    return Doubt("forged", read.message) if isinstance(read, Doubt) and read.problem == "unreadable" else read


def _is_chain(entries: Sequence[Entry], run_id: str) -> bool:
    head = genesis(run_id)
    for place, entry in enumerate(entries):
        if entry.seq != place or entry.run_id != run_id or link(head, entry.body) != entry.hash:
            return False
        head = entry.hash
    return True


def _agrees(head: Head, hashes: Sequence[bytes]) -> bool:
    return 0 < head.count <= len(hashes) and hashes[head.count - 1].hex() == head.head
