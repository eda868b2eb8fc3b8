"""Is a log what was written? If not: which event is the first bad one, and what happened to it.

The chain says where a log stops being what was written, and the events around that place say what was done to it: one
that the chain runs past was inserted, a number that is not there is missing, one that comes later was moved. Only an
edited event whose hash was made anew looks like an edit of the event after it, and the message says so.

Two things the chain alone cannot show: a cut tail, and a chain that was made anew up to its end. A `Checkpoint` that
was kept somewhere else shows both. A `Trace` that the log has of a run beside its events shows them only where whoever
changed the events forgot it, so that there is none says nothing.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ..domain.chain import Entry, decode_event, genesis, link
from ..domain.errors import IllegalTransitionError, LogCorruptError
from ..domain.state.ledger import Ledger

Problem: TypeAlias = Literal[
    "edited", "missing", "reordered", "inserted", "foreign_run", "unreadable", "illegal", "cut", "rewritten"
]


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a run was, and the hash there. Worth something only when kept out of the log's reach."""

    count: int
    head_hash: bytes


class Trace(msgspec.Struct, frozen=True):
    """How far a run was at least, as the log says in another place than its events: one that it names has an event,
    and a snapshot is taken after what it holds is written."""

    count: int = 1
    #: Empty: not known.
    head_hash: bytes = b""


class Flaw(msgspec.Struct, frozen=True):
    #: The first event that is not what was written.
    seq: int
    problem: Problem
    message: str


class Audit(msgspec.Struct, frozen=True):
    #: How many events, from the first on, are one unbroken chain, and the hash after them.
    count: int
    head_hash: bytes
    flaw: Flaw | None = None

    @property
    def ok(self) -> bool:
        return self.flaw is None


def verify(
    entries: Sequence[Entry], run_id: str, expected: Checkpoint | None = None, trace: Trace | None = None
) -> Audit:
    """Check every event of a run. Never raises, whatever the entries hold."""
    # The hash before each event that was found good, and the one after the last of them.
    heads = [genesis(run_id)]
    ledger = Ledger(run_id=run_id)
    for place, entry in enumerate(entries):
        if entry.run_id == run_id and entry.seq == place and _continues(heads[place], entry):
            flaw = _misfit(entry, ledger)
        else:
            flaw = _damage(entries, heads, run_id)
        if flaw is not None:
            good = min(flaw.seq, place)
            return Audit(good, heads[good], flaw)
        heads.append(entry.hash)
    flaw = (expected and _departure(heads, expected)) or (trace and _contradicted(heads, trace)) or None
    return Audit(len(entries), heads[-1], flaw)


def _damage(entries: Sequence[Entry], heads: list[bytes], run_id: str) -> Flaw:
    """What was done to the first event that was not found good."""
    place = len(heads) - 1
    entry = entries[place]
    following = entries[place + 1] if place + 1 < len(entries) else None
    if entry.run_id != run_id:
        return Flaw(place, "foreign_run", f"in place of event {place} is one of run {entry.run_id!r}")
    if place > 0 and _continues(heads[place - 1], entry):
        return Flaw(place - 1, "inserted", f"event {place - 1} was inserted: the chain runs past it")
    if entry.seq != place and not (following and following.seq == place + 1 and _continues(entry.hash, following)):
        return _misplaced(entries, heads)
    if following and following.seq == place and _continues(heads[place], following):
        return Flaw(place, "inserted", f"event {place} was inserted: the chain runs past it")
    rehashed = f", or event {place - 1} was and its hash was made anew" if place else ""
    return Flaw(place, "edited", f"event {place} breaks the chain: it was edited{rehashed}")


def _misplaced(entries: Sequence[Entry], heads: list[bytes]) -> Flaw:
    """What happened when an event's number is not that of its place."""
    place = len(heads) - 1
    seq = entries[place].seq
    if seq > place:
        later = {entry.seq for entry in entries[place + 1 :]}
        if place not in later:
            return Flaw(place, "missing", f"event {place} is missing: event {seq} is in its place")
        problem: Problem = "inserted" if seq in later else "reordered"
        return Flaw(place, problem, f"before event {place} is one that says it is event {seq}")
    if seq >= 0 and _continues(heads[seq], entries[place]):
        return Flaw(seq, "inserted", f"event {seq} is there twice")
    return Flaw(place, "inserted", f"in place of event {place} is one that says it is event {seq}")


def _misfit(entry: Entry, ledger: Ledger) -> Flaw | None:
    """What is wrong with an event that is in the chain: it was written so, but not by this version of Interlock."""
    try:
        ledger.apply(decode_event(entry))
    except LogCorruptError as error:
        return Flaw(entry.seq, "unreadable", str(error))
    except IllegalTransitionError as error:
        return Flaw(entry.seq, "illegal", f"event {entry.seq} cannot follow: {error}")
    return None


def _departure(heads: list[bytes], expected: Checkpoint) -> Flaw | None:
    """Where an unbroken chain is not the one that the checkpoint was taken from."""
    there = len(heads) - 1
    if there < expected.count:
        return Flaw(there, "cut", f"events {there} to {expected.count - 1} are missing at the end")
    if heads[expected.count] != expected.head_hash:
        last = max(expected.count - 1, 0)
        return Flaw(last, "rewritten", f"event {last} or one before it was edited and the hashes made anew")
    return None


def _contradicted(heads: list[bytes], trace: Trace) -> Flaw | None:
    there = len(heads) - 1
    if there == 0 < trace.count:
        return Flaw(0, "missing", "the log knows this run, and none of its events is there")
    if there < trace.count:
        last = trace.count - 1
        return Flaw(
            there, "cut", f"events {there} to {last} are missing at the end: there is a snapshot of event {last}"
        )
    if trace.head_hash and heads[trace.count] != trace.head_hash:
        last = trace.count - 1
        return Flaw(
            last,
            "rewritten",
            f"event {last} or one before it is not the one that there is a snapshot of: it was edited",
        )
    return None


def _continues(head_hash: bytes, entry: Entry) -> bool:
    return link(head_hash, entry.body) == entry.hash
