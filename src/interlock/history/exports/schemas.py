"""Runs in the words of other systems. `SCHEMAS` has them all; every event of a run is in every one of them.

`interlock` is the one that can be checked again: the stored bytes, their hashes, and a signature if there is one. The
others say the same to systems that have a schema of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from ...domain.chain import Entry
from ...domain.event import Event
from ..export import event_line, to_json, to_ndjson
from .cef import cef
from .siem import ecs, encode_line, ocsf, splunk_hec
from .signed_line import SignedCheckpoint
from .told import Told, tell

SchemaName: TypeAlias = Literal["interlock", "splunk_hec", "ecs", "ocsf", "cef"]
FormName: TypeAlias = Literal["json", "ndjson"]

MEDIA_TYPES: Mapping[FormName, str] = {"json": "application/json", "ndjson": "application/x-ndjson"}


class Schema(msgspec.Struct, frozen=True):
    about: str
    #: One event on one line, without its line feed. None: the stored bytes are the line.
    render: Callable[[Told], bytes] | None
    #: What its readers take: Splunk wants objects one behind the other, CEF is lines.
    form: FormName = "json"
    #: Is a line JSON?
    is_json: bool = True


SCHEMAS: Mapping[SchemaName, Schema] = {
    "interlock": Schema("Events as they are stored, which can be verified.", None),
    "splunk_hec": Schema("Envelopes for Splunk's HTTP Event Collector.", splunk_hec, "ndjson"),
    "ecs": Schema("Elastic Common Schema.", ecs),
    "ocsf": Schema("Open Cybersecurity Schema Framework, API Activity.", ocsf),
    "cef": Schema("ArcSight's Common Event Format.", cef, "ndjson", is_json=False),
}


def render(entry: Entry, schema: SchemaName, *, agent: str = "", tool: str = "", host: str = "") -> bytes:
    """One event on one line, without its line feed."""
    written = SCHEMAS[schema].render
    return event_line(entry) if written is None else written(tell(entry, agent=agent, tool=tool, host=host))


def renderers(host: str = "") -> Mapping[str, Callable[[Entry, Event, str], bytes]]:
    """By schema: how one event of an agent's run is written, for whoever sends them one by one."""

    def written(name: SchemaName) -> Callable[[Entry, Event, str], bytes]:
        return lambda entry, event, agent: render(entry, name, agent=agent, host=host)

    return {name: written(name) for name in SCHEMAS}


def export(
    entries: Iterable[Entry],
    schema: SchemaName = "interlock",
    form: FormName | None = None,
    *,
    signed: SignedCheckpoint | None = None,
    host: str = "",
) -> Iterator[bytes]:
    """The parts of an export of a run, in order. `signed` is for the one that can be verified, and ends it."""
    chosen = SCHEMAS[schema]
    form = form or chosen.form
    if chosen.render is None:
        return to_json(entries, signed) if form == "json" else to_ndjson(entries, signed)
    lines = map(chosen.render, _telling(entries, host))
    if form == "ndjson":
        return (line + b"\n" for line in lines)
    return _array(lines if chosen.is_json else (encode_line(line.decode()) for line in lines))


def _telling(entries: Iterable[Entry], host: str) -> Iterator[Told]:
    """Events that say more than they hold: which agent the run is of, and which tool a call is of."""
    agent, tools = "", dict[str, str]()
    for entry in entries:
        told = tell(entry, agent=agent, host=host)
        agent = agent or told.agent
        if told.call_id and told.tool:
            tools[told.call_id] = told.tool
        elif told.call_id in tools:
            told = msgspec.structs.replace(told, tool=tools[told.call_id])
        yield told


def _array(lines: Iterable[bytes]) -> Iterator[bytes]:
    separator = b"[\n"
    for line in lines:
        yield separator + line
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"
