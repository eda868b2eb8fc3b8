"""One event, as everybody else's schema wants to know it: when, who, what, how it went.

It is read from the stored bytes and not from our own types, so that what a newer version wrote, or what somebody
changed, is exported, too. Nothing here raises, whatever an event holds; what does not make sense is left empty.
"""

from typing import Any, cast

import msgspec

from ...domain.chain import Entry
from .kinds import KINDS, UNKNOWN_KIND, Kind, Outcome, Severity

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
