"""Events as audit records for other systems: ECS and OCSF terms, and a severity.

A type that is not in the table is exported as generic API activity.
"""

from enum import IntEnum
from typing import Any, cast

import msgspec

from ..domain.event import LogEntry
from ..rendering.events import EventRow, Outcome, find_event_row


class Severity(IntEnum):
    """Severity levels of OCSF."""

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


#: Of an event that a later version wrote.
_UNKNOWN_ROW = EventRow("Something happened", "Something happened")

_MAX_MESSAGE_CHARS = 1_000
#: Longer than that is no duration.
_MAX_MS = 1e15
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

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
    kind: EventRow
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
    #: Of an answer: where it was given, and whether a person proved it or a client claims it.
    channel: str = ""
    assurance: str = ""

    @property
    def uid(self) -> str:
        """Identifier of the record across all runs."""
        return f"{self.run_id}:{self.seq}"


def to_audit_record(entry: LogEntry, *, agent: str = "", host: str = "") -> AuditRecord:
    """Convert an entry. `agent` is known from earlier events, where this one does not name it."""
    whole, event = _decode_event(entry.body)
    fact, at = _to_object(whole.get("fact")), whole.get("at")

    def find(*paths: str) -> str:
        """Return the first text that is there and not empty."""
        values = (_get_path(fact, path) for path in paths)
        return next((value for value in values if isinstance(value, str) and value), "")

    name = find("type")
    kind = find_event_row(name, find("code")) or _UNKNOWN_ROW
    outcome, severity = _read_outcome(fact, kind)
    detail = find("message", "observation.summary", "decision.reason", "answer.reason", "question.title")
    detail = detail or find("question.prompt", "reason")
    durations = (_get_path(fact, path) for path in ("duration_ms", "observation.duration_ms"))
    return AuditRecord(
        run_id=entry.run_id,
        seq=entry.seq,
        hash=entry.hash.hex(),
        at=at if type(at) is int else 0,
        type=name or "unreadable",
        title=kind.record_title,
        kind=kind,
        outcome=outcome,
        severity=severity,
        message=(f"{kind.record_title}: {detail}" if detail else kind.record_title)[:_MAX_MESSAGE_CHARS],
        event=event,
        actor=find("by", "answer.by", "created_by", "requester"),
        agent=find("agent", "question.agent") or agent,
        tool=find("tool", "question.tool_name", "observation.tool"),
        call_id=find("call_id", "observation.call_id"),
        action_id=find("action_id", "question.action_id"),
        duration_ms=next(
            (float(each) for each in durations if type(each) in {int, float} and 0 <= each < _MAX_MS), None
        ),
        host=host,
        channel=(channel := find("answer.channel")),
        assurance=find("answer.assurance") or ("proved" if channel else ""),
    )


def _decode_event(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return an event, and its bytes as part of a line. Only between values can sane JSON have a line break."""
    try:
        whole = _to_object(_decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}, _encode({"unreadable": body.decode(errors="backslashreplace")})
    return whole, body.replace(b"\n", b" ").replace(b"\r", b" ")


def _read_outcome(fact: dict[str, Any], kind: EventRow) -> tuple[Outcome, Severity]:
    verdict = _get_path(fact, "decision.verdict")
    if "tool" in fact and isinstance(verdict, str) and verdict:
        return _VERDICTS.get(verdict, ("unknown", Severity.LOW))
    ok = _to_object(fact.get("observation")).get("ok", fact.get("ok"))
    if "exit" in fact:
        ok = fact["exit"] == "ok"
    severity = Severity[kind.severity.upper()]
    if not isinstance(ok, bool):
        return kind.outcome, severity
    return ("success", severity) if ok else ("failure", max(severity, Severity.LOW))


def _get_path(fact: dict[str, Any], path: str) -> Any:
    outer, _, last = path.rpartition(".")
    return (_to_object(fact.get(outer)) if outer else fact).get(last)


def _to_object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
