"""Builds the next batch for a destination from the feed of all runs: events of its agents, in its schema."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from ....domain.errors import LogUnreadableError
from ....domain.event import LogEntry, RunStarted, decode_event
from ....storage.event_log import EventLog, FeedEntry
from .destination import Destination
from .positions import DeadLetter
from .senders import BatchItem, EventBatch, EventRenderer

#: Runs whose agent is remembered; one that is not is read again.
_MAX_CACHED_RUNS = 4096


class PreparedBatch(msgspec.Struct, frozen=True):
    """A section of the feed: what of it is to be sent, and what cannot be."""

    last: FeedEntry
    batch: EventBatch
    unreadable: tuple[DeadLetter, ...] = ()


class BatchBuilder:
    """Builds batches for one destination."""

    def __init__(self, log: EventLog, destination: Destination, render: EventRenderer) -> None:
        self._log = log
        self._destination = destination
        self._render = render
        self._agents: dict[str, str] = {}

    async def build(self, placed: Sequence[FeedEntry], max_bytes: int, now: int) -> PreparedBatch | None:
        """Return a batch with as many entries as fit, but at least one. None when there are none."""
        items: list[BatchItem] = []
        unreadable: list[DeadLetter] = []
        last: FeedEntry | None = None
        size = 0
        for feed_entry in placed:
            item = await self._build_item(feed_entry, now)
            if isinstance(item, BatchItem):
                size += len(item.line)
                if items and size > max_bytes:
                    break
                items.append(item)
            elif item is not None:
                unreadable.append(item)
            last = feed_entry
        if last is None:
            return None
        return PreparedBatch(last, EventBatch(self._compute_delivery_id(items), tuple(items)), tuple(unreadable))

    async def accepts_run(self, run_id: str) -> bool:
        """Return True if the destination gets events of this run."""
        return self._destination.agents is None or await self._get_agent(run_id) in self._destination.agents

    async def _build_item(self, placed: FeedEntry, now: int) -> BatchItem | DeadLetter | None:
        """Render an event. Return None if it is not for this destination."""
        entry = placed.entry
        if not await self.accepts_run(entry.run_id):
            return None
        try:
            wanted = self._destination.events
            if wanted is not None and decode_event(entry).type not in wanted:
                return None
            return self._render_item(placed.position, entry, await self._get_agent(entry.run_id))
        except Exception as error:  # one event that cannot be shown must not hold up all that come after it
            problem = f"The event cannot be written as {self._destination.schema}: {type(error).__name__}: {error}"
            return DeadLetter(
                position=placed.position, run_id=entry.run_id, seq=entry.seq, problem=problem[:500], at=now
            )

    def _render_item(self, position: int, entry: LogEntry, agent: str) -> BatchItem:
        event = decode_event(entry)
        # What is sent by lines has no other line breaks; in JSON they can only stand between values.
        line = b" ".join(self._render(entry, event, agent).splitlines())
        return BatchItem(position, entry.run_id, entry.seq, event.type, event.at, line)

    async def _get_agent(self, run_id: str) -> str:
        if run_id not in self._agents:
            if len(self._agents) >= _MAX_CACHED_RUNS:
                self._agents.clear()
            self._agents[run_id] = await self._read_agent(run_id)
        return self._agents[run_id]

    async def _read_agent(self, run_id: str) -> str:
        for entry in await self._log.read(run_id, limit=1):
            try:
                fact = decode_event(entry).fact
            except LogUnreadableError:
                return ""
            if isinstance(fact, RunStarted):
                return fact.agent
        return ""

    def _compute_delivery_id(self, items: Sequence[BatchItem]) -> str:
        """Compute an id of exactly these events for this destination."""
        digest = sha256(self._destination.name.encode())
        for item in items:
            digest.update(f"\n{item.run_id} {item.seq}".encode())
        return digest.hexdigest()[:32]
