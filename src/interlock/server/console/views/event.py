"""One event in full: what it says line by line, as arguments are shown, and the stored bytes as JSON."""

import json
from typing import Any, cast

import msgspec

from ....domain.chain import Entry, decode_event
from ....domain.json import JsonObject
from ..markup import OutlineLine, outline
from .timeline import TimelineRow, timeline_row


class EventShown(msgspec.Struct, frozen=True, kw_only=True):
    row: TimelineRow
    #: The `seq` of what caused it; None: nothing in this run.
    cause: int | None
    lines: list[OutlineLine]
    #: As JSON in ASCII: what is not is written out, so that every character is there to be seen, and to be copied.
    raw: str
    hash: str


def event_shown(entry: Entry) -> EventShown:
    event = decode_event(entry)
    stored = _stored(entry.body)
    said: Any = stored.get("fact", {})
    told = {key: value for key, value in cast(JsonObject, said).items() if key != "type"}
    return EventShown(
        row=timeline_row(event),
        cause=event.causation_id,
        lines=outline(told),
        raw=pretty(stored),
        hash=entry.hash.hex(),
    )


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def _stored(body: bytes) -> JsonObject:
    return msgspec.json.decode(body, type=dict[str, Any])
