"""What each type of event is to systems that know nothing of Interlock: words of ECS and OCSF, and how much it matters.

A type that is not in the table is exported all the same, as news of an API.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.chain import Entry

Outcome: TypeAlias = Literal["success", "failure", "unknown"]


class Severity(IntEnum):
    """As OCSF counts it."""

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


class Kind(msgspec.Struct, frozen=True):
    title: str
    #: `event.category` and `event.type` of ECS.
    category: Literal["process", "api"] = "api"
    type: Literal["start", "end", "change", "info", "allowed", "denied", "access"] = "info"
    #: `activity_id` of OCSF's API Activity: 1 create, 2 read, 3 update, 4 delete, 99 other.
    activity: int = 99
    severity: Severity = Severity.INFORMATIONAL
    #: Where the event itself does not say how it went.
    outcome: Outcome = "unknown"


_LOW, _MEDIUM, _HIGH = Severity.LOW, Severity.MEDIUM, Severity.HIGH

UNKNOWN_KIND = Kind("Something happened")

KINDS: Mapping[str, Kind] = {
    "run.started": Kind("A run started", "process", "start", 1, outcome="success"),
    "run.paused": Kind("A run waits for a person", "process", "change", 3),
    "run.resumed": Kind("A run went on", "process", "change", 3, outcome="success"),
    "run.completed": Kind("A run completed", "process", "end", 3, outcome="success"),
    "run.degraded": Kind("A run completed with less than it should", "process", "end", 3, _MEDIUM, "success"),
    "run.failed": Kind("A run failed", "process", "end", 3, _HIGH, "failure"),
    "run.cancelled": Kind("A run was cancelled", "process", "end", 3, _MEDIUM, "failure"),
    "model.menu": Kind("A model was shown its tools"),
    "user.message": Kind("A person said something", activity=1, outcome="success"),
    "model.request": Kind("A model was asked", "api", "start"),
    "model.response": Kind("A model answered", "api", "end", outcome="success"),
    "model.failed": Kind("A model gave no answer", "api", "end", 99, _MEDIUM, "failure"),
    "model.refused": Kind("A final answer was refused", severity=_LOW, outcome="failure"),
    "verification.conflict": Kind("A claim contradicts the facts", severity=_MEDIUM, outcome="failure"),
    "tool.batch.started": Kind("A model proposed calls", "api", "start"),
    "tool.intent": Kind("A call was proposed"),
    "tool.validation": Kind("A call was validated"),
    "tool.permission": Kind("A call was judged"),
    "approval.requested": Kind("A person was asked for approval", activity=1, severity=_LOW),
    "approval.granted": Kind("A call was approved", "api", "allowed", 3, _LOW, "success"),
    "approval.rejected": Kind("A call was rejected", "api", "denied", 3, _MEDIUM, "failure"),
    "approval.expired": Kind("Nobody approved in time", "api", "denied", 3, _MEDIUM, "failure"),
    "approval.voided": Kind("A question or an answer is void", "api", "change", 3, _MEDIUM),
    "input.requested": Kind("A person was asked for a value", activity=1, severity=_LOW),
    "input.provided": Kind("A value was given", "api", "allowed", 3, _LOW, "success"),
    "input.refused": Kind("A value was refused", "api", "denied", 3, _MEDIUM, "failure"),
    "input.expired": Kind("Nobody gave a value in time", "api", "denied", 3, _MEDIUM, "failure"),
    "consent.requested": Kind("A user was asked for consent", activity=1, severity=_LOW),
    "consent.granted": Kind("A user consented", "api", "allowed", 3, _LOW, "success"),
    "consent.refused": Kind("A user did not consent", "api", "denied", 3, _MEDIUM, "failure"),
    "consent.expired": Kind("A user did not consent in time", "api", "denied", 3, _MEDIUM, "failure"),
    "tool.invocation.started": Kind("A call started", "api", "start", severity=_LOW),
    "tool.invocation.completed": Kind("A call ended", "api", "end", severity=_LOW),
    "tool.invocation.suspended": Kind("A call waits for the run inside it", "api", "change"),
    "tool.observation": Kind("A call was observed", "api", "access", 2),
    "warning": Kind("A warning", severity=_MEDIUM),
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
#: What judges a call, by its words.
_VERDICTS: dict[str, tuple[Outcome, Severity]] = {
    "allow": ("success", Severity.INFORMATIONAL),
    "deny": ("failure", Severity.MEDIUM),
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    seq: int
    hash: str
    at: int
    type: str
    kind: Kind
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


def tell(entry: Entry, *, agent: str = "", tool: str = "", host: str = "") -> Told:
    """`agent` and `tool` are what is known from earlier events, where this one does not say."""
    whole, event = _read(entry.body)
    fact = _fields(whole.get("fact"))
    name = _text(fact.get("type"))
    kind = KINDS.get(name, UNKNOWN_KIND)
    outcome, severity = _ending(fact, kind)
    at, detail, duration = whole.get("at"), _first(fact, _DETAIL), _number(fact, _DURATION)
    return Told(
        run_id=entry.run_id,
        seq=entry.seq,
        hash=entry.hash.hex(),
        at=at if type(at) is int else 0,
        type=name or "unreadable",
        kind=kind,
        outcome=outcome,
        severity=severity,
        message=(f"{kind.title}: {detail}" if detail else kind.title)[:_MAX_MESSAGE_CHARS],
        event=event,
        actor=_first(fact, _ACTOR),
        agent=_first(fact, _AGENT) or agent,
        tool=_first(fact, _TOOL) or tool,
        call_id=_first(fact, _CALL),
        action_id=_first(fact, _ACTION),
        duration_ms=duration,
        host=host,
    )


def _read(body: bytes) -> tuple[dict[str, Any], bytes]:
    """What an event says, and its bytes as part of a line. Only between values can sane JSON have a line break."""
    try:
        whole = _fields(_decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}, _encode({"unreadable": body.decode(errors="backslashreplace")})
    return whole, body.replace(b"\n", b" ").replace(b"\r", b" ")


def _ending(fact: dict[str, Any], kind: Kind) -> tuple[Outcome, Severity]:
    verdict = _text(_fields(fact.get("decision")).get("verdict"))
    if "tool" in fact and verdict:
        return _VERDICTS.get(verdict, ("unknown", Severity.LOW))
    ok = _fields(fact.get("observation")).get("ok", fact.get("ok"))
    if "exit" in fact:
        ok = fact["exit"] == "ok"
    if not isinstance(ok, bool):
        return kind.outcome, kind.severity
    return ("success", kind.severity) if ok else ("failure", max(kind.severity, Severity.LOW))


def _first(fact: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> str:
    return next((found for path in paths if (found := _text(_at(fact, path)))), "")


def _number(fact: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> float | None:
    values = (_at(fact, path) for path in paths)
    return next((float(each) for each in values if type(each) in {int, float} and 0 <= each < _MAX_MS), None)


def _at(fact: dict[str, Any], path: tuple[str, ...]) -> Any:
    *outer, last = path
    for name in outer:
        fact = _fields(fact.get(name))
    return fact.get(last)


def _fields(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
