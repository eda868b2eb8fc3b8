"""Recent activity in all runs: the last few thousand events, as the dashboard shows them."""

from collections.abc import Iterable

import msgspec

from ....domain.json import JsonObject
from ....domain.rendering import truncate
from ....history.run_view import to_run_events
from ....rendering.events import present_event
from ....storage.projection import MAX_TEXT_CHARS, clamp_integer
from ..live.live_event import LiveEvent

#: Older events are not shown.
MAX_ACTIVITY_ROWS = 10_000


class ActivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recent event."""

    #: Its place among the events of all runs.
    position: int
    run_id: str
    seq: int
    at: int
    #: An event type of the REST API: TOOL_CALL, APPROVAL_REQUIRED, ...
    type: str
    #: How it is shown.
    title: str
    tone: str
    icon: str
    tool: str = ""
    action_id: str = ""
    #: What there is to say about it, in a few words.
    text: str = ""
    #: Those of its run, now.
    agent: str = ""
    status: str = ""


def list_activity_rows(live: LiveEvent, agent: str = "", status: str = "") -> Iterable[ActivityRow]:
    """Yield the rows of an event: one for most, none for those that people are not shown."""
    event = live.event
    if event is None:
        return
    for shown in to_run_events(event):
        view = present_event(event.fact)
        yield ActivityRow(
            position=live.position,
            run_id=live.entry.run_id,
            seq=clamp_integer(shown.seq),
            at=clamp_integer(shown.at),
            type=shown.type,
            title=view.title,
            tone=view.tone,
            icon=view.icon,
            tool=_get_text(shown.data, "tool"),
            action_id=_get_text(shown.data, "action_id"),
            text=truncate(view.detail, MAX_TEXT_CHARS),
            agent=agent,
            status=status,
        )


def _get_text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
