"""The next events for a destination, out of the feed of all runs: those of its agents, in its schema."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from ....domain.chain import Entry, decode_event
from ....domain.errors import LogCorruptError
from ....domain.event import RunStarted
from ....storage.event_log import EventLog, Placed
from .destination import Destination
from .interface import Batch, Item, Render
from .positions import SetAside

#: Runs whose agent is remembered; one that is not is read again.
_MAX_REMEMBERED_RUNS = 4096


class Gathered(msgspec.Struct, frozen=True):
    """A piece of the feed: what of it is to be sent, and what of it cannot be."""

    last: Placed
    batch: Batch
    unreadable: tuple[SetAside, ...] = ()


class Gathering:
    def __init__(self, log: EventLog, destination: Destination, render: Render) -> None:
        self._log = log
        self._destination = destination
        self._render = render
        self._agents: dict[str, str] = {}

    async def gather(self, placed: Sequence[Placed], max_bytes: int, now: int) -> Gathered | None:
        """As many of them as have room, but at least one. None when there are none."""
        items: list[Item] = []
        unreadable: list[SetAside] = []
        last: Placed | None = None
        size = 0
        for one in placed:
            item = await self._item(one, now)
            if isinstance(item, Item):
                size += len(item.line)
                if items and size > max_bytes:
                    break
                items.append(item)
            elif item is not None:
                unreadable.append(item)
            last = one
        if last is None:
            return None
        return Gathered(last, Batch(self._delivery(items), tuple(items)), tuple(unreadable))

    async def is_for(self, run_id: str) -> bool:
        """Does the destination get events of this run?"""
        return self._destination.agents is None or await self._agent(run_id) in self._destination.agents

    async def _item(self, placed: Placed, now: int) -> Item | SetAside | None:
        """None: it is not for this destination."""
        entry = placed.entry
        if not await self.is_for(entry.run_id):
            return None
        try:
            return self._rendered(placed.position, entry, await self._agent(entry.run_id))
        except Exception as error:  # one event that cannot be shown must not hold up all that come after it
            problem = f"The event cannot be written as {self._destination.schema}: {type(error).__name__}: {error}"
            return SetAside(position=placed.position, run_id=entry.run_id, seq=entry.seq, problem=problem[:500], at=now)

    def _rendered(self, position: int, entry: Entry, agent: str) -> Item:
        event = decode_event(entry)
        # What is sent by lines has no other line breaks; in JSON they can only stand between values.
        line = b" ".join(self._render(entry, event, agent).splitlines())
        return Item(position, entry.run_id, entry.seq, event.type, event.at, line)

    async def _agent(self, run_id: str) -> str:
        if run_id not in self._agents:
            if len(self._agents) >= _MAX_REMEMBERED_RUNS:
                self._agents.clear()
            self._agents[run_id] = await self._agent_in_log(run_id)
        return self._agents[run_id]

    async def _agent_in_log(self, run_id: str) -> str:
        for entry in await self._log.read(run_id, limit=1):
            try:
                fact = decode_event(entry).fact
            except LogCorruptError:
                return ""
            if isinstance(fact, RunStarted):
                return fact.agent
        return ""

    def _delivery(self, items: Sequence[Item]) -> str:
        """A name of these very events for this very destination."""
        named = sha256(self._destination.name.encode())
        for item in items:
            named.update(f"\n{item.run_id} {item.seq}".encode())
        return named.hexdigest()[:32]
