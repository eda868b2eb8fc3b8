"""The timeline of a run: one row for every event. Details are text from the event, and are shown as text."""

import json
from typing import Any, cast

import msgspec

from ....domain.call import Question
from ....domain.event import Event, LogEntry, decode_event
from ....domain.json import JsonObject
from ....rendering.events import EventPresentation, get_call_id, present_event
from ....rendering.text import shorten
from ..markup import OutlineLine, build_outline

MAX_DETAIL_CHARS = 160


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the timeline."""

    seq: int
    at: int
    type: str
    presentation: EventPresentation
    call_id: str = ""
    action_id: str = ""
    #: The run inside the call, where the event is about one.
    child_run_id: str = ""


def build_timeline_row(event: Event) -> TimelineRow:
    """Build the row of an event in the timeline."""
    fact: Any = event.fact
    shown = present_event(fact)
    question: Question | None = getattr(fact, "question", None)
    return TimelineRow(
        seq=event.seq,
        at=event.at,
        type=event.type,
        presentation=msgspec.structs.replace(shown, detail=shorten(shown.detail, MAX_DETAIL_CHARS)),
        call_id=get_call_id(fact),
        action_id=question.action_id if question is not None else getattr(fact, "action_id", ""),
        child_run_id=getattr(fact, "child_run_id", ""),
    )


class EventPanel(msgspec.Struct, frozen=True, kw_only=True):
    """The details of one event."""

    row: TimelineRow
    #: The `seq` of what caused it; None: nothing in this run.
    cause: int | None
    lines: list[OutlineLine]
    #: As JSON in ASCII: what is not is written out, so that every character is there to be seen, and to be copied.
    raw: str
    hash: str


def build_event_panel(entry: LogEntry) -> EventPanel:
    """Build the details of an event, with its stored form."""
    event = decode_event(entry)
    stored = _decode_body(entry.body)
    fact: Any = stored.get("fact", {})
    fields = {key: value for key, value in cast(JsonObject, fact).items() if key != "type"}
    return EventPanel(
        row=build_timeline_row(event),
        cause=event.causation_id,
        lines=build_outline(fields),
        raw=format_json(stored),
        hash=entry.hash.hex(),
    )


def format_json(value: Any) -> str:
    """Format a value as indented ASCII JSON."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def _decode_body(body: bytes) -> JsonObject:
    return msgspec.json.decode(body, type=dict[str, Any])
