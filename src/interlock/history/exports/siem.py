"""Splunk's HTTP Event Collector, the Elastic Common Schema and OCSF: one JSON object for each event, on one line.

In each of them the whole event is kept, where the schema has a place for it: so nothing is lost, and whoever needs more
than the schema knows finds it. In ECS that place is a text (`event.original`), because an index that took the arguments
of every tool for fields of its own would soon have too many.
"""

from typing import Any

import msgspec

from ... import __version__
from ...domain.chain import escape_line_breaks
from ...domain.json import without_surrogates
from .times import epoch_seconds, sane, utc
from .told import Told

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
