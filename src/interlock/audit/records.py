"""Events as audit records for other systems: ECS and OCSF terms, and a severity.

A type that is not in the table is exported as generic API activity.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.event import LogEntry
from ..rendering.events import EVENT_ROWS

Outcome: TypeAlias = Literal["success", "failure", "unknown"]


class Severity(IntEnum):
    """Severity levels of OCSF."""

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


class EventDescriptor(msgspec.Struct, frozen=True):
    #: `event.category` and `event.type` of ECS.
    category: Literal["process", "api"] = "api"
    type: Literal["start", "end", "change", "info", "allowed", "denied", "access"] = "info"
    #: `activity_id` of OCSF's API Activity: 1 create, 2 read, 3 update, 4 delete, 99 other.
    activity: int = 99
    severity: Severity = Severity.INFORMATIONAL
    #: Where the event itself does not say how it went.
    outcome: Outcome = "unknown"


_LOW, _MEDIUM, _HIGH = Severity.LOW, Severity.MEDIUM, Severity.HIGH

#: Of an event that a later version wrote.
_UNKNOWN_TITLE = "Something happened"

EVENT_DESCRIPTORS: Mapping[str, EventDescriptor] = {
    "run.started": EventDescriptor("process", "start", 1, outcome="success"),
    "run.paused": EventDescriptor("process", "change", 3),
    "run.resumed": EventDescriptor("process", "change", 3, outcome="success"),
    "run.completed": EventDescriptor("process", "end", 3, outcome="success"),
    "run.degraded": EventDescriptor("process", "end", 3, _MEDIUM, "success"),
    "run.failed": EventDescriptor("process", "end", 3, _HIGH, "failure"),
    "run.cancelled": EventDescriptor("process", "end", 3, _MEDIUM, "failure"),
    "model.menu": EventDescriptor(),
    "user.message": EventDescriptor(activity=1, outcome="success"),
    "model.request": EventDescriptor("api", "start"),
    "model.response": EventDescriptor("api", "end", outcome="success"),
    "model.failed": EventDescriptor("api", "end", 99, _MEDIUM, "failure"),
    "model.refused": EventDescriptor(severity=_LOW, outcome="failure"),
    "verification.conflict": EventDescriptor(severity=_MEDIUM, outcome="failure"),
    "tool.batch.started": EventDescriptor("api", "start"),
    "tool.intent": EventDescriptor(),
    "tool.validation": EventDescriptor(),
    "tool.permission": EventDescriptor(),
    "approval.requested": EventDescriptor(activity=1, severity=_LOW),
    "approval.granted": EventDescriptor("api", "allowed", 3, _LOW, "success"),
    "approval.rejected": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "approval.expired": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "approval.voided": EventDescriptor("api", "change", 3, _MEDIUM),
    "input.requested": EventDescriptor(activity=1, severity=_LOW),
    "input.provided": EventDescriptor("api", "allowed", 3, _LOW, "success"),
    "input.refused": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "input.expired": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "consent.requested": EventDescriptor(activity=1, severity=_LOW),
    "consent.granted": EventDescriptor("api", "allowed", 3, _LOW, "success"),
    "consent.refused": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "consent.expired": EventDescriptor("api", "denied", 3, _MEDIUM, "failure"),
    "tool.invocation.started": EventDescriptor("api", "start", severity=_LOW),
    "tool.invocation.completed": EventDescriptor("api", "end", severity=_LOW),
    "tool.invocation.suspended": EventDescriptor("api", "change"),
    "tool.observation": EventDescriptor("api", "access", 2),
    "warning": EventDescriptor(severity=_MEDIUM),
}


_MAX_MESSAGE_CHARS = 1_000
#: Longer than that is no duration.
_MAX_MS = 1e15
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

#: Where a fact says it; the first that is there and not empty.
_ACTOR = (("by",), ("answer", "by"), ("created_by",), ("requester",))
_TOOL = (("tool",), ("question", "tool_name"), ("observation", "tool"))
_AGENT = (("agent",), ("question", "agent"))
_CALL = (("call_id",), ("observation", "call_id"))
_ACTION = (("action_id",), ("question", "action_id"))
_DETAIL = (
    ("message",),
    ("observation", "summary"),
    ("decision", "reason"),
    ("answer", "reason"),
    ("question", "prompt"),
    ("reason",),
)
_DURATION = (("duration_ms",), ("observation", "duration_ms"))
#: Verdicts, by their names.
_VERDICTS: dict[str, tuple[Outcome, Severity]] = {
    "allow": ("success", Severity.INFORMATIONAL),
    "deny": ("failure", Severity.MEDIUM),
}


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event for other systems."""

    run_id: str
    seq: int
    hash: str
    at: int
    type: str
    title: str
    kind: EventDescriptor
    outcome: Outcome
    severity: Severity
    message: str
    #: One line of JSON: the event itself.
    event: bytes
    actor: str = ""
    agent: str = ""
    tool: str = ""
    call_id: str = ""
    action_id: str = ""
    duration_ms: float | None = None
    host: str = ""

    @property
    def uid(self) -> str:
        return f"{self.run_id}:{self.seq}"


def to_audit_record(entry: LogEntry, *, agent: str = "", tool: str = "", host: str = "") -> AuditRecord:
    """Convert an entry. `agent` and `tool` are known from earlier events, where this one does not name them."""
    whole, event = _decode_event(entry.body)
    fact = _to_object(whole.get("fact"))
    name = _to_text(fact.get("type"))
    kind = EVENT_DESCRIPTORS.get(name, EventDescriptor())
    title = EVENT_ROWS[name].record_title if name in EVENT_ROWS else _UNKNOWN_TITLE
    outcome, severity = _read_outcome(fact, kind)
    at, detail, duration = whole.get("at"), _first_text(fact, _DETAIL), _first_number(fact, _DURATION)
    return AuditRecord(
        run_id=entry.run_id,
        seq=entry.seq,
        hash=entry.hash.hex(),
        at=at if type(at) is int else 0,
        type=name or "unreadable",
        title=title,
        kind=kind,
        outcome=outcome,
        severity=severity,
        message=(f"{title}: {detail}" if detail else title)[:_MAX_MESSAGE_CHARS],
        event=event,
        actor=_first_text(fact, _ACTOR),
        agent=_first_text(fact, _AGENT) or agent,
        tool=_first_text(fact, _TOOL) or tool,
        call_id=_first_text(fact, _CALL),
        action_id=_first_text(fact, _ACTION),
        duration_ms=duration,
        host=host,
    )


def _decode_event(body: bytes) -> tuple[dict[str, Any], bytes]:
    """What an event says, and its bytes as part of a line. Only between values can sane JSON have a line break."""
    try:
        whole = _to_object(_decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}, _encode({"unreadable": body.decode(errors="backslashreplace")})
    return whole, body.replace(b"\n", b" ").replace(b"\r", b" ")


def _read_outcome(fact: dict[str, Any], kind: EventDescriptor) -> tuple[Outcome, Severity]:
    verdict = _to_text(_to_object(fact.get("decision")).get("verdict"))
    if "tool" in fact and verdict:
        return _VERDICTS.get(verdict, ("unknown", Severity.LOW))
    ok = _to_object(fact.get("observation")).get("ok", fact.get("ok"))
    if "exit" in fact:
        ok = fact["exit"] == "ok"
    if not isinstance(ok, bool):
        return kind.outcome, kind.severity
    return ("success", kind.severity) if ok else ("failure", max(kind.severity, Severity.LOW))


def _first_text(fact: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> str:
    return next((found for path in paths if (found := _to_text(_get_path(fact, path)))), "")


def _first_number(fact: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> float | None:
    values = (_get_path(fact, path) for path in paths)
    return next((float(each) for each in values if type(each) in {int, float} and 0 <= each < _MAX_MS), None)


def _get_path(fact: dict[str, Any], path: tuple[str, ...]) -> Any:
    *outer, last = path
    for name in outer:
        fact = _to_object(fact.get(name))
    return fact.get(last)


def _to_object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
