"""Every event type and field belongs to a schema version; newer ones are refused as newer, and none is dropped."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from interlock import LogCorruptError, LogEntry, MemoryLog, Replay, Runner, to_ndjson, verify
from interlock.domain import event as events
from interlock.domain.errors import LogVersionError
from interlock.domain.event import SCHEMA_VERSION, Event, decode_event, encode_event
from interlock.history.fold import load_run
from interlock.runs.inbox import Inbox
from interlock.testing.log_entries import chain_entries
from tests.runs.support import agent_of

from .reading import chain_hashes, log_names, read_log

#: All fields with their versions. When a test here fails because a type or a field was added: raise `SCHEMA_VERSION`,
#: add it to `NEWER` and to this file, and record a golden log that has it.
TABLE = Path(__file__).parent / "event_schema.json"


def struct_types(kind: inspect.Type) -> Iterator[inspect.StructType]:
    match kind:
        case inspect.StructType():
            yield kind
            for field in kind.fields:
                yield from struct_types(field.type)
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for each in types:
                yield from struct_types(each)
        case inspect.DictType(key_type=key, value_type=value):
            yield from struct_types(key)
            yield from struct_types(value)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.SetType(item_type=item):
            yield from struct_types(item)
        case _:
            pass


NEXT = SCHEMA_VERSION + 1
STRUCTS = {kind.cls: kind for kind in struct_types(inspect.type_info(Event))}


def name_of(kind: inspect.StructType) -> str:
    return str(kind.tag or kind.cls.__name__)


def test_every_field_has_its_version() -> None:
    table = json.loads(TABLE.read_text())

    assert {name_of(kind): [field.name for field in kind.fields] for kind in STRUCTS.values()} == {
        name: list(fields) for name, fields in table.items()
    }
    newer = {version for fields in table.values() for version in fields.values() if version > 1}
    named = {version for fields in events.NEWER.values() for _, version in fields}
    assert max(newer | {1}) == max(named | {1}) == SCHEMA_VERSION


def test_no_struct_drops_a_field() -> None:
    assert [name_of(kind) for kind in STRUCTS.values() if not kind.cls.__struct_config__.forbid_unknown_fields] == []


def test_recorded_events_name_the_version_they_need() -> None:
    """Also on the short way of the recorder, which searches the usual events for no newer field."""
    recorded = [(name, decode_event(entry), entry.body) for name in log_names() for entry in read_log(name)]

    assert [
        (name, event.seq, event.type)
        for name, event, body in recorded
        if event.schema < events.required_schema(event.fact, body)
    ] == []


def test_every_version_has_a_golden_log() -> None:
    found = {json.loads(entry.body).get("schema", 1) for name in log_names() for entry in read_log(name)}

    assert found == set(range(1, SCHEMA_VERSION + 1))


@pytest.mark.requirement("P31")
def test_an_addition_is_recognized_by_older_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field is written with its version, and only where it is used."""
    warning = events.WarningRaised
    monkeypatch.setattr(events, "NEWER", {warning: ((b'"call_id":', NEXT),), events.RunResumed: ((b"", NEXT + 1),)})
    facts = [warning(message="x"), warning(message="x", call_id="c"), events.RunResumed()]

    written = [encode_event(Event(0, "run", 1, "run", None, fact)) for fact in facts]

    assert [json.loads(body).get("schema", 1) for body in written] == [1, NEXT, NEXT + 1]
    assert decode_event(LogEntry("run", 0, written[0], b"")).fact == facts[0]
    for body in written[1:]:
        with pytest.raises(LogVersionError, match="newer version of Interlock"):
            decode_event(LogEntry("run", 0, body, b""))


#: What a newer version may have written in place of the last event, with the type or field that is unknown here.
NEWER_EVENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "type": lambda event: {**event, "schema": NEXT, "fact": {"type": "run.archived"}},
    "field": lambda event: {**event, "schema": NEXT, "fact": {**event["fact"], "archive": "x"}},
    "nested field": lambda event: {**event, "schema": NEXT, "fact": {**event["fact"], "observation": {"archive": 1}}},
    "envelope": lambda event: {**event, "schema": NEXT, "archive": "x"},
    "meaning": lambda event: {**event, "schema": NEXT},
}


def edited(
    edit: Callable[[dict[str, Any]], dict[str, Any]], name: str = "approvals", place: int = -1
) -> list[LogEntry]:
    """Return a golden log that was continued by other code. Its chain is whole."""
    entries = read_log(name)
    place %= len(entries)
    body = json.dumps(edit(json.loads(entries[place].body))).encode()
    entries[place] = msgspec.structs.replace(entries[place], body=body)
    hashes = chain_hashes(entries)
    return [msgspec.structs.replace(entry, hash=hash) for entry, hash in zip(entries, hashes, strict=True)]


@pytest.mark.requirement("P31")
@pytest.mark.parametrize("kind", NEWER_EVENTS)
def test_a_newer_event_is_refused_as_newer(kind: str) -> None:
    entries = edited(NEWER_EVENTS[kind])
    flaw = verify(entries, entries[0].run_id).flaw

    assert flaw is not None
    assert flaw.problem == "newer"
    for read in (decode_last, Replay, load):
        with pytest.raises(LogVersionError, match="written by a newer version of Interlock"):
            read(entries)
    assert b"".join(to_ndjson(entries)).count(b"\n") == len(entries)


@pytest.mark.requirement("P31")
def test_a_run_that_newer_code_began_is_refused_as_newer() -> None:
    entries = edited(lambda event: {**event, "fact": {**event["fact"], "schema": NEXT}}, place=0)

    with pytest.raises(LogVersionError, match="newer version of Interlock"):
        load(entries)


@pytest.mark.requirement("P31")
@pytest.mark.parametrize("kind", ["type", "field", "nested field", "envelope"])
def test_an_unknown_field_of_a_known_version_is_damage(kind: str) -> None:
    entries = edited(lambda event: {**NEWER_EVENTS[kind](event), "schema": SCHEMA_VERSION})

    with pytest.raises(LogCorruptError, match="cannot be read"):
        load(entries)


@pytest.mark.requirement("P31")
async def test_recover_reports_newer_and_damaged_runs() -> None:
    """And leaves them out of the inbox; other runs are resumed."""
    log = MemoryLog()
    newer = edited(NEWER_EVENTS["type"], "example.crash")
    log.append(newer[0].run_id, newer)
    log.append("bad", [*chain_entries("bad", [b"{}"])])
    async with Runner(agent_of("Done."), log=log) as runner, Inbox(log) as inbox:
        assert await runner.recover() == []
        assert {run_id: type(error) for run_id, error in runner.unreadable.items()} == {
            newer[0].run_id: LogVersionError,
            "bad": LogCorruptError,
        }
        with pytest.raises(LogVersionError, match="newer version"):
            await runner.open(newer[0].run_id)
        assert await inbox.pending() == []


def decode_last(entries: list[LogEntry]) -> None:
    decode_event(entries[-1])


def load(entries: list[LogEntry]) -> None:
    log = MemoryLog()
    log.append(entries[0].run_id, entries)
    asyncio.run(load_run(log, entries[0].run_id))
