"""Runs in the words of other systems. `SCHEMAS` has them all; every event of a run is in every one of them.

`interlock` is the one that can be checked again: the stored bytes, their hashes, and a signature if there is one. The
others say the same to systems that have a schema of their own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from .. import __version__
from ..domain.chain import Entry, escape_line_breaks
from ..domain.event import Event
from ..domain.json import without_surrogates
from .export import event_line, to_json, to_ndjson
from .records import Severity, Told, tell
from .signed_line import SignedCheckpoint
from .times import epoch_seconds, sane, utc

PRODUCT = "Interlock"
_ECS_VERSION = "8.17.0"
_OCSF_VERSION = "1.6.0"
#: Application Activity: API Activity.
_OCSF_CATEGORY, _OCSF_CLASS = 6, 6003
_OCSF_STATUS = {"unknown": (0, "Unknown"), "success": (1, "Success"), "failure": (2, "Failure")}
_OCSF_ACTIVITIES = {1: "Create", 2: "Read", 3: "Update", 4: "Delete"}
_NANOSECONDS_PER_MS = 1_000_000

_encode_json = msgspec.json.Encoder().encode


def splunk_hec(told: Told) -> bytes:
    fields = {
        "run_id": told.run_id,
        "seq": told.seq,
        "hash": told.hash,
        "type": told.type,
        "outcome": told.outcome,
        "severity": told.severity.name.lower(),
        "actor": told.actor,
        "agent": told.agent,
        "tool": told.tool,
        "call_id": told.call_id,
        "action_id": told.action_id,
    }
    return encode_line(
        {
            "time": msgspec.Raw(epoch_seconds(told.at).encode()),
            **_there(host=told.host),
            "source": "interlock",
            "sourcetype": "interlock:event",
            "event": msgspec.Raw(told.event),
            "fields": _there(**fields),
        }
    )


def ecs(told: Told) -> bytes:
    duration = None if told.duration_ms is None else int(told.duration_ms * _NANOSECONDS_PER_MS)
    return encode_line(
        {
            "@timestamp": utc(told.at),
            "ecs": {"version": _ECS_VERSION},
            "message": told.message,
            "event": _there(
                kind="event",
                category=[told.kind.category],
                type=[told.kind.type],
                action=told.type,
                outcome=told.outcome,
                id=told.uid,
                sequence=told.seq,
                hash=told.hash,
                severity=int(told.severity),
                provider="interlock",
                dataset="interlock.audit",
                duration=duration,
                original=told.event.decode(errors="backslashreplace"),
            ),
            **_there(
                host=_there(name=told.host),
                user=_there(name=told.actor),
                related=_there(user=[told.actor] if told.actor else None),
                service={"type": "interlock", **_there(name=told.agent)},
                interlock=_there(
                    run_id=told.run_id,
                    agent=told.agent,
                    tool=told.tool,
                    call_id=told.call_id,
                    action_id=told.action_id,
                ),
            ),
        }
    )


def ocsf(told: Told) -> bytes:
    activity = told.kind.activity
    status_id, status = _OCSF_STATUS[told.outcome]
    resource = _there(name=told.tool, uid=told.call_id)
    return encode_line(
        {
            "category_uid": _OCSF_CATEGORY,
            "class_uid": _OCSF_CLASS,
            "activity_id": activity,
            "activity_name": _OCSF_ACTIVITIES.get(activity, told.type),
            "type_uid": _OCSF_CLASS * 100 + activity,
            "severity_id": int(told.severity),
            "severity": told.severity.name.capitalize(),
            "status_id": status_id,
            "status": status,
            "time": sane(told.at) // _NANOSECONDS_PER_MS,
            "message": told.message,
            **_there(duration=None if told.duration_ms is None else int(told.duration_ms)),
            "metadata": {
                "version": _OCSF_VERSION,
                "product": {"name": PRODUCT, "vendor_name": PRODUCT, "version": __version__},
                "uid": told.uid,
                "correlation_uid": told.run_id,
                "event_code": told.type,
                "sequence": told.seq,
                "original_time": utc(told.at),
            },
            "actor": _there(app_name="interlock", app_uid=told.agent, user=_there(name=told.actor)),
            "api": {"operation": told.type, "service": {"name": "interlock"}, **_there(request=_request(told))},
            "src_endpoint": _there(svc_name="interlock", hostname=told.host),
            **_there(resources=[{**resource, "type": "tool"}] if resource else None),
            "unmapped": {"hash": told.hash, **_there(action_id=told.action_id), "event": msgspec.Raw(told.event)},
        }
    )


def encode_line(value: Any) -> bytes:
    """One line for every reader, whatever texts are in it."""
    try:
        line = _encode_json(value)
    except UnicodeEncodeError:
        line = _encode_json(without_surrogates(value))
    return escape_line_breaks(line)


def _request(told: Told) -> dict[str, Any]:
    return _there(uid=told.call_id)


def _there(**fields: Any) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", {})}


_SEVERITIES = {Severity.INFORMATIONAL: 2, Severity.LOW: 4, Severity.MEDIUM: 6, Severity.HIGH: 8}
_NANOSECONDS_PER_MILLISECOND = 1_000_000
_invisible = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").sub


def cef(told: Told) -> bytes:
    header = ("CEF:0", PRODUCT, PRODUCT, __version__, told.type, told.kind.title, str(_SEVERITIES[told.severity]))
    extension = {
        "rt": str(sane(told.at) // _NANOSECONDS_PER_MILLISECOND),
        "externalId": told.uid,
        "act": told.type,
        "outcome": told.outcome,
        "dvchost": told.host,
        "suser": told.actor,
        "msg": told.message,
        "cn1Label": "seq",
        "cn1": str(told.seq),
        **_labelled("cs1", "runId", told.run_id),
        **_labelled("cs2", "hash", told.hash),
        **_labelled("cs3", "tool", told.tool),
        **_labelled("cs4", "agent", told.agent),
        **_labelled("cs5", "callId", told.call_id),
        **_labelled("cs6", "actionId", told.action_id),
        "rawEvent": told.event.decode(errors="backslashreplace"),
    }
    said = " ".join(f"{key}={_value(text)}" for key, text in extension.items() if text)
    return f"{'|'.join(map(_field, header))}|{said}".encode()


def _labelled(key: str, label: str, text: str) -> dict[str, str]:
    return {f"{key}Label": label, key: text} if text else {}


def _field(text: str) -> str:
    """Of the header, where no line break can be written."""
    return _plain(text).replace("|", "\\|").replace("\n", " ").replace("\r", " ")


def _value(text: str) -> str:
    return _plain(text).replace("=", "\\=").replace("\n", "\\n").replace("\r", "\\r")


def _plain(text: str) -> str:
    return _invisible(_written, text).replace("\\", "\\\\")


def _written(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


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
