"""A log that writes what lists show together with the events, so that its readers need no index of their own."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ..domain.event import Event
from .event_log import EventLog, FeedEntry
from .rollups import Rollups, RunFacts

#: A parameter of a query. A tuple is a list of names.
IndexValue: TypeAlias = str | float | tuple[str, ...]


class RecentEvent(NamedTuple):
    """An event, with what lists show of its run."""

    placed: FeedEntry
    agent: str
    status: str


class StoredIndex(Protocol):
    """The rows of runs and questions in the database of a log: `listed_runs` and `listed_actions`."""

    async def fetch(self, sql: str, parameters: Sequence[IndexValue]) -> list[Any]:
        """Return the rows of a query."""
        ...

    async def list_recent(
        self, before: int, limit: int, where: str, parameters: Sequence[IndexValue]
    ) -> list[RecentEvent]:
        """Return the events of the newest appends below a position whose runs fulfil a condition, newest first."""
        ...

    async def mark_damaged(self, run_id: str, message: str, *, is_closed: bool) -> None:
        """Show a run as damaged, and a closed one as cancelled."""
        ...

    async def reindex(self) -> int:
        """Make the rows again that do not know all events of their run. Return how many runs that were."""
        ...

    async def read_rollup_position(self) -> int:
        """Return the position of the last event whose figures were added."""
        ...

    async def find_run_facts(self, events: Sequence[Event]) -> dict[str, RunFacts]:
        """Return what figures need to know of the runs of these events."""
        ...

    async def add_rollups(self, after: int, until: int, rollups: Rollups) -> bool:
        """Add the figures of the events after one position, to another. Return False where another server did."""
        ...


@runtime_checkable
class IndexedLog(EventLog, Protocol):
    """A log with an index."""

    @property
    def index(self) -> StoredIndex:
        """The index of this log."""
        ...
