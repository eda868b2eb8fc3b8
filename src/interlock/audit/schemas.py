"""Export schemas for other systems. `SCHEMAS` has them all; every event of a run is in every one of them.

`interlock` is the verifiable one: the stored bytes, their hashes, and a signature if there is one. The others are for
systems with their own schema.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from .. import __version__
from ..domain.event import Event, LogEntry, escape_line_breaks
from ..domain.json import escape_surrogates
from ..rendering.times import clamp_time, format_epoch_seconds, format_rfc3339
from .export import format_event_line, join_json_array, to_json, to_ndjson
from .records import AuditRecord, Severity, to_audit_record
from .signed_checkpoint import SignedCheckpoint

PRODUCT = "Interlock"
_ECS_VERSION = "8.17.0"
_OCSF_VERSION = "1.6.0"
#: Application Activity: API Activity.
_OCSF_CATEGORY, _OCSF_CLASS = 6, 6003
_OCSF_STATUS = {"unknown": (0, "Unknown"), "success": (1, "Success"), "failure": (2, "Failure")}
_OCSF_ACTIVITIES = {1: "Create", 2: "Read", 3: "Update", 4: "Delete"}
_NANOSECONDS_PER_MS = 1_000_000

_encode_json = msgspec.json.Encoder().encode


def splunk_hec(record: AuditRecord) -> bytes:
    """Encode a record as an event for the HTTP Event Collector of Splunk."""
    fields = {
        **_pick(record, "run_id", "seq", "hash", "type", "outcome"),
        "severity": record.severity.name.lower(),
        **_pick(record, "actor", "agent", "tool", "call_id", "action_id", "channel", "assurance"),
    }
    return encode_line(
        {
            "time": msgspec.Raw(format_epoch_seconds(record.at).encode()),
            **_drop_empty(host=record.host),
            "source": "interlock",
            "sourcetype": "interlock:event",
            "event": msgspec.Raw(record.event),
            "fields": fields,
        }
    )


def ecs(record: AuditRecord) -> bytes:
    """Encode a record in the Elastic Common Schema."""
    duration = None if record.duration_ms is None else int(record.duration_ms * _NANOSECONDS_PER_MS)
    return encode_line(
        {
            "@timestamp": format_rfc3339(record.at),
            "ecs": {"version": _ECS_VERSION},
            "message": record.message,
            "event": _drop_empty(
                kind="event",
                category=[record.kind.category],
                type=[record.kind.type],
                action=record.type,
                outcome=record.outcome,
                id=record.uid,
                sequence=record.seq,
                hash=record.hash,
                severity=int(record.severity),
                provider="interlock",
                dataset="interlock.audit",
                duration=duration,
                original=record.event.decode(errors="backslashreplace"),
            ),
            **_drop_empty(
                host=_drop_empty(name=record.host),
                user=_drop_empty(name=record.actor),
                related=_drop_empty(user=[record.actor] if record.actor else None),
                service={"type": "interlock", **_drop_empty(name=record.agent)},
                interlock=_pick(record, "run_id", "agent", "tool", "call_id", "action_id", "channel", "assurance"),
            ),
        }
    )


def ocsf(record: AuditRecord) -> bytes:
    """Encode a record in the Open Cybersecurity Schema Framework."""
    activity = record.kind.activity
    status_id, status = _OCSF_STATUS[record.outcome]
    resource = _drop_empty(name=record.tool, uid=record.call_id)
    return encode_line(
        {
            "category_uid": _OCSF_CATEGORY,
            "class_uid": _OCSF_CLASS,
            "activity_id": activity,
            "activity_name": _OCSF_ACTIVITIES.get(activity, record.type),
            "type_uid": _OCSF_CLASS * 100 + activity,
            "severity_id": int(record.severity),
            "severity": record.severity.name.capitalize(),
            "status_id": status_id,
            "status": status,
            "time": clamp_time(record.at) // _NANOSECONDS_PER_MS,
            "message": record.message,
            **_drop_empty(duration=None if record.duration_ms is None else int(record.duration_ms)),
            "metadata": {
                "version": _OCSF_VERSION,
                "product": {"name": PRODUCT, "vendor_name": PRODUCT, "version": __version__},
                "uid": record.uid,
                "correlation_uid": record.run_id,
                "event_code": record.type,
                "sequence": record.seq,
                "original_time": format_rfc3339(record.at),
            },
            "actor": _drop_empty(app_name="interlock", app_uid=record.agent, user=_drop_empty(name=record.actor)),
            "api": {
                "operation": record.type,
                "service": {"name": "interlock"},
                **_drop_empty(request=_drop_empty(uid=record.call_id)),
            },
            "src_endpoint": _drop_empty(svc_name="interlock", hostname=record.host),
            **_drop_empty(resources=[{**resource, "type": "tool"}] if resource else None),
            "unmapped": {
                "hash": record.hash,
                **_drop_empty(action_id=record.action_id, channel=record.channel, assurance=record.assurance),
                "event": msgspec.Raw(record.event),
            },
        }
    )


def encode_line(value: Any) -> bytes:
    """Encode a value as one line for every reader, whatever texts are in it."""
    try:
        line = _encode_json(value)
    except UnicodeEncodeError:
        line = _encode_json(escape_surrogates(value))
    return escape_line_breaks(line)


def _pick(record: AuditRecord, *names: str) -> dict[str, Any]:
    return _drop_empty(**{name: getattr(record, name) for name in names})


def _drop_empty(**fields: Any) -> dict[str, Any]:
    """Drop fields that are unknown or empty."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", {})}


_SEVERITIES = {Severity.INFORMATIONAL: 2, Severity.LOW: 4, Severity.MEDIUM: 6, Severity.HIGH: 8}
_invisible = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").sub


def cef(record: AuditRecord) -> bytes:
    """Encode a record in the Common Event Format."""
    header = ("CEF:0", PRODUCT, PRODUCT, __version__, record.type, record.title, str(_SEVERITIES[record.severity]))
    extension = {
        "rt": str(clamp_time(record.at) // _NANOSECONDS_PER_MS),
        "externalId": record.uid,
        "act": record.type,
        "outcome": record.outcome,
        "dvchost": record.host,
        "suser": record.actor,
        "msg": record.message,
        "cn1Label": "seq",
        "cn1": str(record.seq),
        **_label_field("cs1", "runId", record.run_id),
        **_label_field("cs2", "hash", record.hash),
        **_label_field("cs3", "tool", record.tool),
        **_label_field("cs4", "agent", record.agent),
        **_label_field("cs5", "callId", record.call_id),
        **_label_field("cs6", "actionId", record.action_id),
        **_label_field("flexString1", "channel", record.channel),
        **_label_field("flexString2", "assurance", record.assurance),
        "rawEvent": record.event.decode(errors="backslashreplace"),
    }
    extension_text = " ".join(f"{key}={_escape_extension(text)}" for key, text in extension.items() if text)
    return f"{'|'.join(map(_escape_header, header))}|{extension_text}".encode()


def _label_field(key: str, label: str, text: str) -> dict[str, str]:
    return {f"{key}Label": label, key: text} if text else {}


def _escape_header(text: str) -> str:
    """Escape a text of the header, where no line break can be written."""
    return _escape_text(text).replace("|", "\\|").replace("\n", " ").replace("\r", " ")


def _escape_extension(text: str) -> str:
    return _escape_text(text).replace("=", "\\=").replace("\n", "\\n").replace("\r", "\\r")


def _escape_text(text: str) -> str:
    return _invisible(lambda match: f"\\u{ord(match[0]):04x}", text).replace("\\", "\\\\")


SchemaName: TypeAlias = Literal["interlock", "splunk_hec", "ecs", "ocsf", "cef"]
ExportFormat: TypeAlias = Literal["json", "ndjson"]

MEDIA_TYPES: Mapping[ExportFormat, str] = {"json": "application/json", "ndjson": "application/x-ndjson"}


class ExportSchema(msgspec.Struct, frozen=True):
    """A schema of exported events."""

    about: str
    #: One event on one line, without its line feed. None: the stored bytes are the line.
    render: Callable[[AuditRecord], bytes] | None
    #: What its readers take: Splunk wants objects one behind the other, CEF is lines.
    form: ExportFormat = "json"
    #: Whether a line is JSON.
    is_json: bool = True


SCHEMAS: Mapping[SchemaName, ExportSchema] = {
    "interlock": ExportSchema("Events as they are stored, which can be verified.", None),
    "splunk_hec": ExportSchema("Envelopes for Splunk's HTTP Event Collector.", splunk_hec, "ndjson"),
    "ecs": ExportSchema("Elastic Common Schema.", ecs),
    "ocsf": ExportSchema("Open Cybersecurity Schema Framework, API Activity.", ocsf),
    "cef": ExportSchema("ArcSight's Common Event Format.", cef, "ndjson", is_json=False),
}


def render_event(entry: LogEntry, schema: SchemaName, *, agent: str = "", host: str = "") -> bytes:
    """Return one event on one line, without its line feed."""
    render = SCHEMAS[schema].render
    return format_event_line(entry) if render is None else render(to_audit_record(entry, agent=agent, host=host))


def build_renderers(host: str = "") -> Mapping[str, Callable[[LogEntry, Event, str], bytes]]:
    """Return, by schema, the function that renders one event of an agent's run."""

    def written(name: SchemaName) -> Callable[[LogEntry, Event, str], bytes]:
        return lambda entry, event, agent: render_event(entry, name, agent=agent, host=host)

    return {name: written(name) for name in SCHEMAS}


def export_run(
    entries: Iterable[LogEntry],
    schema: SchemaName = "interlock",
    form: ExportFormat | None = None,
    *,
    signed: SignedCheckpoint | None = None,
    host: str = "",
) -> Iterator[bytes]:
    """Yield the parts of an export of a run, in order. `signed` is for the verifiable schema, and ends it."""
    chosen = SCHEMAS[schema]
    form = form or chosen.form
    if chosen.render is None:
        return to_json(entries, signed) if form == "json" else to_ndjson(entries, signed)
    lines = map(chosen.render, _enrich_records(entries, host))
    if form == "ndjson":
        return (line + b"\n" for line in lines)
    return join_json_array(lines if chosen.is_json else (encode_line(line.decode()) for line in lines))


def _enrich_records(entries: Iterable[LogEntry], host: str) -> Iterator[AuditRecord]:
    """Add to each record the agent of its run and the tool of its call, known from earlier events."""
    agent, tools = "", dict[str, str]()
    for entry in entries:
        record = to_audit_record(entry, agent=agent, host=host)
        agent = agent or record.agent
        if record.call_id and record.tool:
            tools[record.call_id] = record.tool
        elif record.call_id in tools:
            record = msgspec.structs.replace(record, tool=tools[record.call_id])
        yield record
