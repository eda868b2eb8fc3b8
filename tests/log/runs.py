"""Runs to append, of real events, encoded and chained."""

from collections.abc import Iterable, Sequence

from interlock.domain.chain import Entry, encode_event, genesis, link
from interlock.domain.event import Event, Warned
from interlock.storage.event_log import Claim, EventLog


def chained(run_id: str, count: int, message: str = "a fact") -> list[Entry]:
    """The first `count` entries of a run."""
    return chain(run_id, (encode_event(_event(run_id, seq, message)) for seq in range(count)))


def chain(run_id: str, bodies: Iterable[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    head = genesis(run_id)
    for seq, body in enumerate(bodies):
        head = link(head, body)
        entries.append(Entry(run_id, seq, body, head))
    return entries


async def append(log: EventLog, run_id: str, entries: Sequence[Entry], claim: Claim | None = None) -> None:
    """Return when the entries are durable."""
    written = log.append(run_id, entries, claim)
    if written is not None:
        await written


def _event(run_id: str, seq: int, message: str) -> Event:
    return Event(
        seq=seq,
        run_id=run_id,
        at=1_700_000_000_000_000_000 + seq,
        correlation_id=run_id,
        causation_id=seq - 1 if seq else None,
        fact=Warned(message=message),
    )
