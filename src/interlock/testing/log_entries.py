"""Build log entries of real events, encoded and chained, and append them."""

from collections.abc import Iterable, Sequence

from ..domain.event import Event, LogEntry, WarningRaised, encode_event, genesis_hash, next_hash
from ..storage.event_log import EventLog, Lease

_FIRST_EVENT_NS = 1_700_000_000_000_000_000


def make_entries(run_id: str, count: int, message: str = "a fact") -> list[LogEntry]:
    """Return the first `count` entries of a run."""
    return chain_entries(run_id, (encode_event(_make_event(run_id, seq, message)) for seq in range(count)))


def chain_entries(run_id: str, bodies: Iterable[bytes]) -> list[LogEntry]:
    """Return a run whose events have these bodies."""
    entries: list[LogEntry] = []
    head = genesis_hash(run_id)
    for seq, body in enumerate(bodies):
        head = next_hash(head, body)
        entries.append(LogEntry(run_id, seq, body, head))
    return entries


async def append_entries(log: EventLog, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
    """Append, and return when the entries are durable."""
    written = log.append(run_id, entries, lease)
    if written is not None:
        await written


def _make_event(run_id: str, seq: int, message: str) -> Event:
    return Event(
        seq=seq,
        run_id=run_id,
        at=_FIRST_EVENT_NS + seq,
        correlation_id=run_id,
        causation_id=seq - 1 if seq else None,
        fact=WarningRaised(message=message),
    )
