"""The audit log of the server itself: sign-ins, refusals, keys, exports.

Rows are only ever added (the table refuses anything else), and chained as the events of a run are: an edited, removed,
reordered or inserted row breaks the chain at a known place. A cut tail shows in the count and head that checkpoints
sign. A change of an account or a key is written with its row, in one transaction.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import islice
from time import time_ns
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from ....domain.event import escape_line_breaks, next_hash
from ....domain.json import escape_surrogates
from ....domain.rendering import truncate
from ..database.interface import Connection, Database

GENESIS = sha256(b"interlock/journal/v1\n").digest()
MAX_PAGE = 1_000
MAX_TEXT_CHARS = 500
MAX_DETAILS = 16

_SELECT_HEAD = "SELECT seq, CAST(hash AS BLOB) FROM journal ORDER BY seq DESC LIMIT 1"
_SELECT_PAGE = "SELECT seq, CAST(body AS BLOB), CAST(hash AS BLOB) FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
_SELECT_HASH = "SELECT CAST(hash AS BLOB) FROM journal WHERE seq = ?"
_INSERT_ENTRY = "INSERT INTO journal (seq, body, hash) VALUES (?, ?, ?)"

#: The secret of a key, wherever it was pasted.
_mask_keys = re.compile(r"(ik_[0-9a-f]{8})_[A-Za-z0-9_-]{20,}").sub

_NO_DETAIL: Mapping[str, str] = MappingProxyType({})

AuditOutcome: TypeAlias = Literal["done", "refused", "failed"]


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was done or refused. Texts are truncated when written."""

    by: str
    #: A dotted name: `account.created`, `session.started`, `decision.refused`, ...
    action: str
    target: str = ""
    outcome: AuditOutcome = "done"
    detail: Mapping[str, str] = {}


class AuditLogEntry(AuditEvent, frozen=True, kw_only=True):
    """One row. `at` is nanoseconds since 1970."""

    seq: int
    at: int


class AuditLogCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How far the chain holds. `problem` is empty when it does to its end."""

    count: int
    head: str
    broken_seq: int = 0
    problem: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditLogEntry).decode


class AuditLog:
    """The append-only, chained audit log of the server."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def add(
        self,
        by: str,
        action: str,
        target: str = "",
        *,
        outcome: AuditOutcome = "done",
        detail: Mapping[str, str] = _NO_DETAIL,
    ) -> AuditLogEntry:
        """Append an event; durable when it returns. Secrets must not be passed."""
        event, at = AuditEvent(by=by, action=action, target=target, outcome=outcome, detail=detail), self._now()
        return await self._database.run(lambda connection: append_event(connection, at, event))

    async def read(self, after: int = 0, limit: int = 100) -> tuple[AuditLogEntry, ...]:
        """Return rows, oldest first. An unreadable row is shown as such; `verify` says more."""
        bounds = (after, max(0, min(limit, MAX_PAGE)))
        rows = await self._database.read(lambda connection: connection.execute(_SELECT_PAGE, bounds).fetchall())
        return tuple(_decode_or_placeholder(seq, body) for seq, body, _ in rows)

    async def read_head(self) -> tuple[int, bytes]:
        """Return how many rows there are, and the hash over all of them."""
        return await self._database.read(_read_head)

    async def read_hash(self, seq: int) -> bytes | None:
        """Return the hash over all rows up to that one; None: there is none."""

        def find(connection: Connection) -> bytes | None:
            row = connection.execute(_SELECT_HASH, (seq,)).fetchone()
            return row[0] if row else None

        return await self._database.read(find)

    async def verify(self) -> AuditLogCheck:
        """Verify all rows, a page at a time, including those added meanwhile."""
        check, previous = AuditLogCheck(count=0, head=GENESIS.hex()), GENESIS
        while not check.problem:
            bounds = (check.count, MAX_PAGE)
            rows = await self._database.read(
                lambda connection, page=bounds: connection.execute(_SELECT_PAGE, page).fetchall()
            )
            if not rows:
                break
            for seq, body, digest in rows:
                if problem := _find_chain_break(check.count + 1, seq, previous, body, digest):
                    check = msgspec.structs.replace(check, broken_seq=check.count + 1, problem=problem)
                    break
                check, previous = AuditLogCheck(count=seq, head=digest.hex()), digest
        return check


def append_event(connection: Connection, at: int, event: AuditEvent) -> AuditLogEntry:
    """Append an event inside the transaction of the change itself: both are written, or neither."""
    count, previous = _read_head(connection)
    entry = AuditLogEntry(
        seq=count + 1,
        at=at,
        by=_sanitize_text(event.by),
        action=_sanitize_text(event.action),
        target=_sanitize_text(event.target),
        outcome=event.outcome,
        detail={_sanitize_text(key): _sanitize_text(text) for key, text in islice(event.detail.items(), MAX_DETAILS)},
    )
    body = escape_line_breaks(_encode(entry))
    connection.execute(_INSERT_ENTRY, (entry.seq, body, next_hash(previous, body)))
    return entry


def _sanitize_text(text: str) -> str:
    return truncate(escape_surrogates(_mask_keys(r"\1_(hidden)", text[: 4 * MAX_TEXT_CHARS])), MAX_TEXT_CHARS)


def _read_head(connection: Connection) -> tuple[int, bytes]:
    return connection.execute(_SELECT_HEAD).fetchone() or (0, GENESIS)


def _decode_or_placeholder(seq: int, body: bytes) -> AuditLogEntry:
    entry = _try_decode(body)
    return entry or AuditLogEntry(seq=seq, at=0, by="", action="unreadable", outcome="failed")


def _try_decode(body: bytes) -> AuditLogEntry | None:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _find_chain_break(expected: int, seq: int, previous: bytes, body: bytes, digest: bytes) -> str:
    if seq != expected:
        return f"row {expected} is missing; the next one is {seq}"
    if next_hash(previous, body) != digest:
        return f"row {seq} is not what was written"
    entry = _try_decode(body)
    if entry is None or entry.seq != seq:
        return f"row {seq} says something else about itself"
    return ""
