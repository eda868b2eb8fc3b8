"""Every event of a run is in every schema, whole, on one line, and says who did what and how it went."""

import json
import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.audit.export import format_event_line, read_export
from interlock.audit.schemas import (
    MEDIA_TYPES,
    SCHEMAS,
    ExportFormat,
    SchemaName,
    build_renderers,
    export_run,
    render_event,
)
from interlock.audit.verify import verify
from interlock.domain.event import Fact, LogEntry, RunFailed, RunStarted, WarningRaised, decode_event, next_hash
from interlock.rendering.events import EVENT_ROWS
from tests.audit.test_export import HOSTILE
from tests.each import each
from tests.history.recorded import FACTS, RUN, chain, record

ENTRIES = record(FACTS)
GRANTED = 21
DENIED = 12
FORMS: tuple[ExportFormat, ...] = ("json", "ndjson")
OTHERS: tuple[SchemaName, ...] = ("splunk_hec", "ecs", "ocsf", "cef")


def written(schema: SchemaName, form: ExportFormat = "ndjson", entries: list[LogEntry] = ENTRIES) -> bytes:
    return b"".join(export_run(entries, schema, form, host="host-1"))


def line(schema: SchemaName, seq: int) -> Any:
    return json.loads(written(schema).splitlines()[seq])


def cef_fields(text: str) -> tuple[list[str], dict[str, str]]:
    """Header and extension, as a reader of CEF finds them."""
    *header, extension = re.split(r"(?<!\\)(?:\\\\)*\|", text, maxsplit=7)
    keys = list(re.finditer(r"(?:^|(?<= ))([A-Za-z0-9]+)=", extension))
    ends = [match.start() - 1 for match in keys[1:]] + [len(extension)]
    plain = {"n": "\n", "r": "\r"}
    return header, {
        match[1]: re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), extension[match.end() : end])
        for match, end in zip(keys, ends, strict=True)
    }


def original(schema: SchemaName, text: str) -> Any:
    """The event that is inside."""
    match schema:
        case "interlock" | "splunk_hec":
            return json.loads(text)["event"]
        case "ecs":
            return json.loads(json.loads(text)["event"]["original"])
        case "ocsf":
            return json.loads(text)["unmapped"]["event"]
        case "cef":
            return json.loads(cef_fields(text)[1]["rawEvent"])


@pytest.mark.requirement("R173")
@each("schema", SCHEMAS)
@each("form", FORMS)
def test_every_event_is_in_every_schema_and_nothing_of_it_is_lost(schema: SchemaName, form: ExportFormat) -> None:
    text = written(schema, form).decode()
    lines = text.splitlines() if form == "ndjson" else [_as_line(schema, each) for each in json.loads(text)]

    assert [original(schema, each) for each in lines] == [msgspec.json.decode(entry.body) for entry in ENTRIES]


def _as_line(schema: SchemaName, element: Any) -> str:
    return element if schema == "cef" else json.dumps(element)


@pytest.mark.requirement("R171")
def test_a_splunk_envelope_has_its_keys_and_flat_fields() -> None:
    envelope = line("splunk_hec", GRANTED)

    assert {key: envelope[key] for key in ("time", "host", "source", "sourcetype")} == {
        "time": 1_700_000_000.0,
        "host": "host-1",
        "source": "interlock",
        "sourcetype": "interlock:event",
    }
    assert envelope["fields"] == {
        "run_id": RUN,
        "seq": GRANTED,
        "hash": ENTRIES[GRANTED].hash.hex(),
        "type": "approval.granted",
        "outcome": "success",
        "severity": "low",
        "actor": "ada",
        "agent": "fixer",
        "tool": "write_file",
        "call_id": "write",
        "action_id": "act_1",
    }
    assert all(type(value) in {str, int} for each in range(len(ENTRIES)) for value in _fields(each).values())


def _fields(seq: int) -> dict[str, Any]:
    return line("splunk_hec", seq)["fields"]


def test_splunk_envelopes_still_hold_the_chain() -> None:
    head, entries = b"", list[LogEntry]()
    for text in written("splunk_hec").splitlines():
        body = text[text.index(b'"event":') + 8 : text.index(b',"fields":')]
        entries.append(LogEntry(RUN, len(entries), body, bytes.fromhex(json.loads(text)["fields"]["hash"])))
        assert not head or next_hash(head, body) == entries[-1].hash
        head = entries[-1].hash

    assert verify(entries, RUN).ok


def test_ecs_has_its_fields() -> None:
    document = line("ecs", DENIED)

    assert document["@timestamp"] == "2023-11-14T22:13:20.000000012Z"
    assert {key: value for key, value in document["event"].items() if key != "original"} == {
        "kind": "event",
        "category": ["api"],
        "type": ["info"],
        "action": "tool.permission",
        "outcome": "failure",
        "id": f"{RUN}:{DENIED}",
        "sequence": DENIED,
        "hash": ENTRIES[DENIED].hash.hex(),
        "severity": 3,
        "provider": "interlock",
        "dataset": "interlock.audit",
    }
    assert (document["service"]["name"], document["interlock"]["tool"]) == ("fixer", "git_push")
    assert line("ecs", GRANTED)["user"] == {"name": "ada"}


def test_ocsf_has_what_its_class_requires() -> None:
    for seq in range(len(ENTRIES)):
        document = line("ocsf", seq)
        assert document["type_uid"] == document["class_uid"] * 100 + document["activity_id"]
        assert {"time", "severity_id", "category_uid", "metadata", "actor", "api", "src_endpoint"} <= document.keys()
    granted = line("ocsf", GRANTED)
    assert (granted["class_uid"], granted["status"], granted["time"]) == (6003, "Success", 1_700_000_000_000)
    assert granted["actor"]["user"] == {"name": "ada"}
    assert granted["metadata"]["uid"] == f"{RUN}:{GRANTED}"


def test_cef_has_a_header_and_labelled_fields() -> None:
    header, fields = cef_fields(written("cef").decode().splitlines()[GRANTED])

    assert (header[0], header[1], header[4], header[5]) == (
        "CEF:0",
        "Interlock",
        "approval.granted",
        "A call was approved",
    )
    assert (fields["suser"], fields["cn1"], fields["cs1"], fields["cs3"]) == ("ada", "21", RUN, "write_file")
    assert (fields["rt"], fields["outcome"]) == ("1700000000000", "success")


def test_in_cef_no_value_ends_the_header_a_field_or_the_line() -> None:
    text = "a|b\\c=d suser=mallory\ncs1=x\r\u2028y\x85\x1b[2J"
    entries = record([RunStarted(schema=1, agent=text), WarningRaised(message=text)])

    lines = written("cef", entries=entries).decode().splitlines()

    header, fields = cef_fields(lines[1])
    assert (len(lines), len(header), "suser" in fields) == (2, 7, False)
    assert fields["msg"] == "A warning: " + text.replace("\u2028", "\\u2028").replace("\x85", "\\u0085").replace(
        "\x1b", "\\u001b"
    )
    assert fields["cs4"].startswith("a|b\\c=d")


@each("text", HOSTILE.values())
@each("schema", SCHEMAS)
def test_no_text_makes_another_line_in_any_schema(schema: SchemaName, text: str) -> None:
    entries = record([RunStarted(schema=1, agent=text), WarningRaised(message=text)])
    exported = written(schema, entries=entries).decode()

    assert len(exported.splitlines()) == 2
    assert original(schema, exported.splitlines()[1])["fact"]["message"] == text


@given(st.text(), st.sampled_from(list(SCHEMAS)), st.sampled_from(FORMS))
def test_any_text_is_kept_in_any_schema(text: str, schema: SchemaName, form: ExportFormat) -> None:
    entries = record([RunStarted(schema=1, agent=text, requester=text), WarningRaised(message=text)])
    exported = written(schema, form, entries).decode()

    lines = exported.splitlines() if form == "ndjson" else [_as_line(schema, each) for each in json.loads(exported)]
    assert [original(schema, each) for each in lines] == [msgspec.json.decode(entry.body) for entry in entries]


ODD = [
    b"",
    b"\xff",
    b"5",
    b"[" * 100_000,
    b'{"fact":5,"at":"x"}',
    b'{"at":-7,"fact":{"type":7,"tool":[],"by":{}}}',
    b'{"at":99999999999999999999999,"fact":{"type":"x","observation":[],"duration_ms":1e400}}',
    b'{"at":1,\n"fact":{"type":"warning",\r"message":"m"}}',
    b'{"at":1,"fact":{"type":"tool.permission","tool":"t","decision":{"verdict":"?"}}}',
    b'{"at":9223372036854775807,"fact":{"type":"run.failed","message":"\xe2\x80\xa8"}}',
]


@each("body", ODD)
@each("schema", OTHERS)
def test_an_event_that_makes_no_sense_is_exported_all_the_same(schema: SchemaName, body: bytes) -> None:
    (entry,) = chain([body])

    text = render_event(entry, schema)

    assert len(text.decode().splitlines()) == 1
    assert original(schema, text.decode()) is not None
    assert b"".join(export_run([entry], schema, "json"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "tool", "by", "answer", "observation", "decision", "ok", "exit", "at", "fact"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from(OTHERS),
)
def test_nothing_in_an_event_makes_a_schema_raise(fact: Any, schema: SchemaName) -> None:
    body = json.dumps({"seq": 0, "run_id": RUN, "at": 1, "fact": fact}).encode()

    assert render_event(chain([body])[0], schema, host="h")


@each(
    ("code", "name", "severity"),
    [
        ("tool_failed", "A run failed", "8"),
        ("user_denied", "A run ended because a person rejected a call", "6"),
        ("approval_expired", "A run ended because no person answered in time", "6"),
    ],
)
def test_a_rejected_run_is_not_exported_as_failed(code: str, name: str, severity: str) -> None:
    entries = record([RunStarted(schema=3), RunFailed(message="No.", code=code)])
    header, _ = cef_fields(written("cef", entries=entries).decode().splitlines()[-1])
    assert header[5:] == [name, severity]


def test_the_table_of_kinds_has_every_event() -> None:
    types = {str(fact.__struct_config__.tag) for fact in get_args(Fact)}

    assert types <= EVENT_ROWS.keys()


def test_who_sends_events_one_by_one_gets_the_same_lines() -> None:
    senders = build_renderers("host-1")

    assert senders.keys() == SCHEMAS.keys()
    assert senders["interlock"](ENTRIES[0], decode_event(ENTRIES[0]), "") == format_event_line(ENTRIES[0])
    assert json.loads(senders["ecs"](ENTRIES[3], decode_event(ENTRIES[3]), "a"))["event"]["sequence"] == 3


def test_each_schema_has_the_form_that_its_readers_take() -> None:
    assert {name: schema.form for name, schema in SCHEMAS.items()} == {
        "interlock": "json",
        "splunk_hec": "ndjson",
        "ecs": "json",
        "ocsf": "json",
        "cef": "ndjson",
    }
    assert MEDIA_TYPES.keys() == set(FORMS)
    assert read_export(b"".join(export_run(ENTRIES)).splitlines()) == ENTRIES


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_run_without_events_is_an_empty_export(schema: SchemaName) -> None:
    assert json.loads(b"".join(export_run([], schema, "json"))) == []
    assert b"".join(export_run([], schema, "ndjson")) == b""
