"""Folds events to state. The log decides; a snapshot only saves reading what was folded before.

`load_run` starts from the newest snapshot if the log still holds the event it was taken after, under the same hash,
and if the snapshot is whole and of this version. A snapshot that fails any of this is ignored: folding from the start
gives the same ledger, only later. The chain is checked over everything that is read, so a load from a snapshot checks
the events after it; `verify` checks them all and never looks at a snapshot.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from ..domain.errors import LogCorruptError
from ..domain.event import TERMINAL_EVENTS, LogEntry, decode_event, genesis_hash
from ..domain.json import lazy_decoder
from ..domain.state.ledger import Ledger
from ..storage.event_log import EventLog, RunSummary, Snapshot, StoredRun

#: Raise it with every change of what a ledger holds or of how a fact changes it: older snapshots are then ignored.
SNAPSHOT_VERSION = 14

_PAGE = 1000
_SEAL_BYTES = 32

_encode = msgspec.json.Encoder().encode
_decoder = lazy_decoder(Ledger)


class LoadedRun(NamedTuple):
    """The state of a run, and the hash that the next event is chained to."""

    ledger: Ledger
    head_hash: bytes


def fold_entries(run_id: str, entries: Iterable[LogEntry]) -> Ledger:
    """Return the state of a run from its first event on."""
    return fold_more(empty_run(run_id), entries).ledger


def fold_more(loaded: LoadedRun, entries: Iterable[LogEntry]) -> LoadedRun:
    """Fold the entries that follow into the same ledger, after all of them are checked and decoded."""
    ledger, head_hash = loaded
    run_id, seq = ledger.run_id, ledger.next_seq
    checked: list[LogEntry] = []
    for entry in entries:
        if entry.seq != seq or entry.run_id != run_id or entry.hash != sha256(head_hash + entry.body).digest():
            raise LogCorruptError(f"event {seq} of {run_id} is not what was written")
        checked.append(entry)
        head_hash = entry.hash
        seq += 1
    for event in [decode_event(entry) for entry in checked]:
        ledger.apply(event)
    return LoadedRun(ledger, head_hash)


def has_ended(summary: RunSummary) -> bool:
    """Return whether the last event of the run is its end, without reading the events between."""
    return bool(summary.last.seq) and isinstance(decode_event(summary.last).fact, TERMINAL_EVENTS)


async def load_run(log: EventLog, run_id: str) -> LoadedRun:
    """Return the state of a run as the log has it now; an unknown run has the state before its first event."""
    stored = await log.load(run_id, _PAGE)
    if not stored.entries and stored.snapshot is None:
        return empty_run(run_id)
    loaded, entries = _use_snapshot(run_id, stored), stored.entries[1:]
    if loaded is None:
        loaded, entries = empty_run(run_id), stored.entries
        if stored.snapshot is not None:  # it is not used, so everything before it is needed, too
            return await load_more(log, loaded)
    loaded = fold_more(loaded, entries)
    return loaded if len(stored.entries) < _PAGE else await load_more(log, loaded)


async def load_more(log: EventLog, loaded: LoadedRun) -> LoadedRun:
    """Fold what was appended since into the same ledger."""
    while True:
        entries = await log.read(loaded.ledger.run_id, loaded.ledger.next_seq - 1, _PAGE)
        loaded = fold_more(loaded, entries)
        if len(entries) < _PAGE:
            return loaded


def build_snapshot(ledger: Ledger, head_hash: bytes) -> Snapshot:
    """Return a snapshot for `load_run`. The ledger must have at least one event."""
    state = _encode(ledger)
    return Snapshot(ledger.next_seq - 1, head_hash, _compute_seal(head_hash, state) + state)


def _use_snapshot(run_id: str, stored: StoredRun) -> LoadedRun | None:
    """Return the state of the snapshot; None where it cannot be used."""
    snapshot = stored.snapshot
    ledger = None if snapshot is None else _decode_snapshot(snapshot)
    if snapshot is None or ledger is None or ledger.run_id != run_id or ledger.next_seq != snapshot.seq + 1:
        return None
    if [(entry.seq, entry.hash) for entry in stored.entries[:1]] != [(snapshot.seq, snapshot.hash)]:
        return None
    return LoadedRun(ledger, snapshot.hash)


def _decode_snapshot(snapshot: Snapshot) -> Ledger | None:
    sealed = memoryview(snapshot.state)  # a large state is not copied
    seal, state = bytes(sealed[:_SEAL_BYTES]), sealed[_SEAL_BYTES:]
    if seal != _compute_seal(snapshot.hash, state):
        return None
    try:
        return _decoder.decode(state)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _compute_seal(head_hash: bytes, state: bytes | memoryview) -> bytes:
    """Bind a state to its position in the chain and to this version, so that damage and age are detected."""
    seal = sha256(head_hash + b"%d\n" % SNAPSHOT_VERSION)
    seal.update(state)
    return seal.digest()


def empty_run(run_id: str) -> LoadedRun:
    """Return the state before the first event of a run."""
    return LoadedRun(Ledger(run_id=run_id), genesis_hash(run_id))
