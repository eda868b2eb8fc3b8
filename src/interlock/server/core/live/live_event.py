"""An event for subscribers: decoded once, and rendered once in each form, for all of them."""

from collections.abc import Callable
from typing import TypeVar

from ....domain.errors import LogUnreadableError
from ....domain.event import Event, LogEntry, decode_event
from ....storage.event_log import FeedEntry

_T = TypeVar("_T")


class LiveEvent:
    """One event of the log, with its position among the events of all runs (0: unknown)."""

    __slots__ = ("_event", "_is_decoded", "_rendered", "entry", "position", "problem")

    def __init__(self, position: int, entry: LogEntry) -> None:
        self.position = position
        self.entry = entry
        #: Why it cannot be read; empty for nearly all.
        self.problem = ""
        self._event: Event | None = None
        self._is_decoded = False
        self._rendered: dict[str, object] | None = None

    @property
    def event(self) -> Event | None:
        """The event; None when it cannot be decoded: `problem` says why."""
        if not self._is_decoded:
            try:
                self._event = decode_event(self.entry)
            except LogUnreadableError as error:
                self.problem = str(error)
            self._is_decoded = True
        return self._event

    def render_once(self, form: str, make: Callable[["LiveEvent"], _T]) -> _T:
        """Return what `make` returns for this event, cached per form."""
        if self._rendered is None:
            self._rendered = {}
        if form not in self._rendered:
            self._rendered[form] = make(self)
        return self._rendered[form]  # pyright: ignore[reportReturnType]  # one form has one `make`


def to_live_event(feed_entry: FeedEntry) -> LiveEvent:
    """Convert an entry of the feed to a live event."""
    return LiveEvent(feed_entry.position, feed_entry.entry)
