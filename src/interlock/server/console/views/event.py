"""One event in full: what it says line by line, as arguments are shown, and the stored bytes as JSON."""

import json
from typing import Any, cast

import msgspec

from ....domain.chain import LogEntry, decode_event
from ....domain.json import JsonObject
from ..markup import OutlineLine, build_outline
from .timeline import TimelineRow, build_timeline_row


class EventPanel(msgspec.Struct, frozen=True, kw_only=True):
    row: TimelineRow
    #: The `seq` of what caused it; None: nothing in this run.
    cause: int | None
    lines: list[OutlineLine]
    #: As JSON in ASCII: what is not is written out, so that every character is there to be seen, and to be copied.
    raw: str
    hash: str


def build_event_panel(entry: LogEntry) -> EventPanel:
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
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def _decode_body(body: bytes) -> JsonObject:
    return msgspec.json.decode(body, type=dict[str, Any])
