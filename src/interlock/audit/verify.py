"""Verification of a log: the first bad event, and what happened to it. If not: which event is the first bad one, and
what happened to it.

The chain says where a log stops being what was written, and the events around that place say what was done to it: one
that the chain runs past was inserted, a number that is not there is missing, one that comes later was moved. Only an
edited event whose hash was recomputed looks like an edit of the event after it, and the message says so.

Two things the chain alone cannot show: a cut tail, and a chain that was recomputed up to its end. A `Checkpoint` that
was stored elsewhere shows both. A `ProgressTrace` that the log has of a run beside its events shows them only where
it was not changed with the events, so its absence proves nothing.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ..domain.errors import IllegalTransitionError, LogCorruptError, LogVersionError
from ..domain.event import LogEntry, decode_event, genesis_hash, next_hash
from ..domain.state.ledger import Ledger

FlawKind: TypeAlias = Literal[
    "edited", "missing", "reordered", "inserted", "foreign_run", "unreadable", "newer", "illegal", "cut", "rewritten"
]


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a run was, and the hash there. Useful only when stored out of the log's reach."""

    count: int
    head_hash: bytes


class ProgressTrace(msgspec.Struct, frozen=True):
    """The minimum progress of a run, recorded outside of its events: a named event exists, and a snapshot is taken
    after its content is written.
    """

    count: int = 1
    #: Empty: not known.
    head_hash: bytes = b""


class ChainFlaw(msgspec.Struct, frozen=True):
    """The first problem of a chain."""

    #: The first event that is not what was written.
    seq: int
    problem: FlawKind
    message: str


class ChainVerification(msgspec.Struct, frozen=True):
    """The result of verifying a chain."""

    #: How many events, from the first on, are one unbroken chain, and the hash after them.
    count: int
    head_hash: bytes
    flaw: ChainFlaw | None = None

    @property
    def ok(self) -> bool:
        """True if no flaw was found in the chain."""
        return self.flaw is None


def verify(
    entries: Sequence[LogEntry], run_id: str, expected: Checkpoint | None = None, trace: ProgressTrace | None = None
) -> ChainVerification:
    """Check every event of a run. Never raises, whatever the entries hold."""
    # The hash before each event that was found good, and the one after the last of them.
    heads = [genesis_hash(run_id)]
    ledger = Ledger(run_id=run_id)
    for place, entry in enumerate(entries):
        if entry.run_id == run_id and entry.seq == place and _extends_chain(heads[place], entry):
            flaw = _find_illegal_event(entry, ledger)
        else:
            flaw = _classify_damage(entries, heads, run_id)
        if flaw is not None:
            good = min(flaw.seq, place)
            return ChainVerification(good, heads[good], flaw)
        heads.append(entry.hash)
    flaw = (expected and _compare_checkpoint(heads, expected)) or (trace and _compare_trace(heads, trace)) or None
    return ChainVerification(len(entries), heads[-1], flaw)


def _classify_damage(entries: Sequence[LogEntry], heads: list[bytes], run_id: str) -> ChainFlaw:
    """Return what was done to the first event that was not found good."""
    place = len(heads) - 1
    entry = entries[place]
    following = entries[place + 1] if place + 1 < len(entries) else None
    if entry.run_id != run_id:
        return ChainFlaw(place, "foreign_run", f"in place of event {place} is one of run {entry.run_id!r}")
    if place > 0 and _extends_chain(heads[place - 1], entry):
        return ChainFlaw(place - 1, "inserted", f"event {place - 1} was inserted: the chain runs past it")
    if entry.seq != place and not (following and following.seq == place + 1 and _extends_chain(entry.hash, following)):
        return _classify_misplaced(entries, heads)
    if following and following.seq == place and _extends_chain(heads[place], following):
        return ChainFlaw(place, "inserted", f"event {place} was inserted: the chain runs past it")
    rehashed = f", or event {place - 1} was and its hash was recomputed" if place else ""
    return ChainFlaw(place, "edited", f"event {place} breaks the chain: it was edited{rehashed}")


def _classify_misplaced(entries: Sequence[LogEntry], heads: list[bytes]) -> ChainFlaw:
    """Return what happened when an event's number is not that of its place."""
    place = len(heads) - 1
    seq = entries[place].seq
    if seq > place:
        later = {entry.seq for entry in entries[place + 1 :]}
        if place not in later:
            return ChainFlaw(place, "missing", f"event {place} is missing: event {seq} is in its place")
        problem: FlawKind = "inserted" if seq in later else "reordered"
        return ChainFlaw(place, problem, f"before event {place} is one that says it is event {seq}")
    if seq >= 0 and _extends_chain(heads[seq], entries[place]):
        return ChainFlaw(seq, "inserted", f"event {seq} is there twice")
    return ChainFlaw(place, "inserted", f"in place of event {place} is one that says it is event {seq}")


def _find_illegal_event(entry: LogEntry, ledger: Ledger) -> ChainFlaw | None:
    """Return what is wrong with an event of the chain: it was written so, but not by this version of Interlock."""
    try:
        ledger.apply(decode_event(entry))
    except LogVersionError as error:
        return ChainFlaw(entry.seq, "newer", str(error))
    except LogCorruptError as error:
        return ChainFlaw(entry.seq, "unreadable", str(error))
    except IllegalTransitionError as error:
        return ChainFlaw(entry.seq, "illegal", f"event {entry.seq} cannot follow: {error}")
    return None


def _compare_checkpoint(heads: list[bytes], expected: Checkpoint) -> ChainFlaw | None:
    """Return where an unbroken chain is not the one that the checkpoint was taken from."""
    there = len(heads) - 1
    if there < expected.count:
        return ChainFlaw(there, "cut", f"events {there} to {expected.count - 1} are missing at the end")
    if heads[expected.count] != expected.head_hash:
        last = max(expected.count - 1, 0)
        return ChainFlaw(last, "rewritten", f"event {last} or one before it was edited and the hashes recomputed")
    return None


def _compare_trace(heads: list[bytes], trace: ProgressTrace) -> ChainFlaw | None:
    there = len(heads) - 1
    if there == 0 < trace.count:
        return ChainFlaw(0, "missing", "the log knows this run, and none of its events is there")
    if there < trace.count:
        last = trace.count - 1
        return ChainFlaw(
            there, "cut", f"events {there} to {last} are missing at the end: there is a snapshot of event {last}"
        )
    if trace.head_hash and heads[trace.count] != trace.head_hash:
        last = trace.count - 1
        return ChainFlaw(
            last,
            "rewritten",
            f"event {last} or one before it is not the one that there is a snapshot of: it was edited",
        )
    return None


def _extends_chain(head_hash: bytes, entry: LogEntry) -> bool:
    return next_hash(head_hash, entry.body) == entry.hash
