"""A run of many events, signed, and everything that somebody who has the file but not the key can do to it."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from interlock.audit.checkpoint import ChainHead, CheckpointStatement, canonicalize_statement
from interlock.audit.export import to_json, to_ndjson
from interlock.audit.keys import PublicKey, derive_key_id
from interlock.audit.signed_checkpoint import SignedCheckpoint
from interlock.domain.event import LogEntry, WarningRaised, encode_event, genesis_hash, next_hash
from tests.history.recorded import FACTS, RUN, chain, event, record

_MORE = tuple(WarningRaised(message=f"warning {number}") for number in range(40))
ENTRIES = record((*FACTS[:-1], *_MORE, FACTS[-1]))
OTHER = record((*FACTS[:-1], *_MORE, FACTS[-1]), "run_2")
PLACES = range(len(ENTRIES))

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key().public_bytes_raw()
KEY = PublicKey(key=derive_key_id(PUBLIC), public=PUBLIC.hex())
KEYS = {KEY.key: KEY}


def sign(
    entries: list[LogEntry], *, private: Ed25519PrivateKey = PRIVATE, key: str = KEY.key, number: int = 1
) -> SignedCheckpoint:
    runs = {entries[-1].run_id: ChainHead(len(entries), entries[-1].hash.hex())}
    said = CheckpointStatement(
        number=number, at="2026-11-16T09:00:00.000000Z", key=key, previous="", position=9, runs=runs
    )
    return SignedCheckpoint(canonicalize_statement(said), private.sign(canonicalize_statement(said)))


SIGNED = sign(ENTRIES)

FORMS: Mapping[str, Callable[[Iterable[LogEntry], SignedCheckpoint | None], Iterable[bytes]]] = {
    "ndjson": to_ndjson,
    "json": to_json,
}


def lines(form: str, entries: list[LogEntry], signed: SignedCheckpoint | None = SIGNED) -> list[bytes]:
    return b"".join(FORMS[form](entries, signed)).splitlines(keepends=True)


Tamper: TypeAlias = Callable[[int], list[LogEntry]]


def _edit(place: int) -> list[LogEntry]:
    entry = ENTRIES[place]
    edited = LogEntry(entry.run_id, entry.seq, entry.body.replace(b'"at":17', b'"at":18'), entry.hash)
    return [*ENTRIES[:place], edited, *ENTRIES[place + 1 :]]


def _forged(place: int) -> LogEntry:
    body = encode_event(event(place, WarningRaised(message="All good.")))
    return LogEntry(RUN, place, body, next_hash(ENTRIES[place - 1].hash if place else genesis_hash(RUN), body))


def _insert(place: int) -> list[LogEntry]:
    return [*ENTRIES[:place], _forged(place), *ENTRIES[place:]]


def _delete(place: int) -> list[LogEntry]:
    return [*ENTRIES[:place], *ENTRIES[place + 1 :]]


def _reorder(place: int) -> list[LogEntry]:
    other = place + 1 if place + 1 < len(ENTRIES) else 0
    swapped = list(ENTRIES)
    swapped[place], swapped[other] = swapped[other], swapped[place]
    return swapped


def _truncate(place: int) -> list[LogEntry]:
    return ENTRIES[: max(place, 1)] if place else []


def _restamp(place: int) -> list[LogEntry]:
    """All hashes made anew, so that the chain is unbroken."""
    if place == 0:
        bodies = [ENTRIES[0].body.replace(b"fixer", b"faker"), *(entry.body for entry in ENTRIES[1:])]
    else:
        bodies = [entry.body for entry in _edit(place)]
    return chain(bodies)


def _splice(place: int) -> list[LogEntry]:
    return [*ENTRIES[:place], *OTHER[place:]]


def _splice_one(place: int) -> list[LogEntry]:
    return [*ENTRIES[:place], OTHER[place], *ENTRIES[place + 1 :]]


TAMPERED: Mapping[str, Tamper] = {
    "edit": _edit,
    "insert": _insert,
    "delete": _delete,
    "reorder": _reorder,
    "truncate": _truncate,
    "re-stamp": _restamp,
    "splice the rest": _splice,
    "splice one": _splice_one,
}
