"""Runs to append, of real events, encoded and chained."""

from collections.abc import Iterable, Sequence

from interlock.domain.event import Event, LogEntry, WarningRaised, encode_event, genesis_hash, next_hash
from interlock.storage.event_log import EventLog, Lease


def chained(run_id: str, count: int, message: str = "a fact") -> list[LogEntry]:
    """The first `count` entries of a run."""
    return chain(run_id, (encode_event(_event(run_id, seq, message)) for seq in range(count)))


def chain(run_id: str, bodies: Iterable[bytes]) -> list[LogEntry]:
    entries: list[LogEntry] = []
    head = genesis_hash(run_id)
    for seq, body in enumerate(bodies):
        head = next_hash(head, body)
        entries.append(LogEntry(run_id, seq, body, head))
    return entries


async def append(log: EventLog, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
    """Return when the entries are durable."""
    written = log.append(run_id, entries, lease)
    if written is not None:
        await written


def _event(run_id: str, seq: int, message: str) -> Event:
    return Event(
        seq=seq,
        run_id=run_id,
        at=1_700_000_000_000_000_000 + seq,
        correlation_id=run_id,
        causation_id=seq - 1 if seq else None,
        fact=WarningRaised(message=message),
    )
