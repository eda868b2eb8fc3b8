"""Read golden logs: everything that these tests need from inside the package is imported here.

A golden log is an export (`NAME.ndjson`), and what the package makes of it (`NAME.json`): the outline of its events,
its final state, what the model and the user read of each call, and the digests of its exports.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from interlock import LogEntry, Replay, read_export, render_for_model, render_for_user, to_run_events
from interlock.audit.schemas import SCHEMAS, export_run
from interlock.history.fold import fold_entries
from interlock.history.run_handle_view import to_run_handle_events
from interlock.history.state_view import build_state_at

LOGS = Path(__file__).parent / "logs"
#: The folder of every golden run, as long as the one that it really had: the size of an output depends on it.
WORKSPACE = b"/tmp/golden-00000000"
_ROOT = Path(__file__).parents[2]
_FIRST_TIME = 1_650_000_000_000_000_000

Runs: TypeAlias = Mapping[str, Sequence[LogEntry]]


def log_names() -> list[str]:
    return sorted(path.stem for path in LOGS.glob("*.ndjson"))


def read_log(name: str) -> list[LogEntry]:
    return read_export((LOGS / f"{name}.ndjson").read_bytes().splitlines())


def read_summary(name: str) -> dict[str, Any]:
    return json.loads((LOGS / f"{name}.json").read_text())


def summarize(entries: Sequence[LogEntry]) -> dict[str, Any]:
    """Return what the package makes of a log, as JSON that a person can compare."""
    return {name: part(entries) for name, part in PARTS.items()}


def outline(entries: Sequence[LogEntry]) -> list[str]:
    """Return one line for each event: its place, what happened, how it was decided or ended, and the run's state."""
    replay = Replay(entries)
    return [
        f"{_line(entry)} -> {replay.state_at(step.event.seq).state}"
        for entry, step in zip(entries, replay, strict=True)
    ]


def _line(entry: LogEntry) -> str:
    event = msgspec.json.decode(entry.body)
    fact = event["fact"]
    observation = fact.get("observation", {})
    words = [f"{event['seq']:02} {fact['type']}", fact.get("call_id") or observation.get("call_id", "")]
    for part in (fact, fact.get("decision"), fact.get("answer"), observation, fact.get("question")):
        words += [_word(name, part[name]) for name in _SHOWN if part and name in part]
    words += [f"{failure['phase']}:{failure['code']}"] if (failure := observation.get("failure")) else []
    return " ".join(word for word in words if word)


_SHOWN = (
    *("tool", "verdict", "rule_ids", "layer", "ok", "errors", "approved", "by", "scope", "expired", "kind", "waiting"),
    *("payload_hash", "risk", "exit", "code", "executor", "profile", "waited_for", "duplicate", "agent", "finish"),
    *("call_count", "side_effects", "reason", "message", "changes"),
)


def _word(name: str, value: Any) -> str:
    if name == "payload_hash":
        return f"{name}={value[:23]}"
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def final_state(entries: Sequence[LogEntry]) -> dict[str, Any]:
    """Return the fold of the whole log under names of its own, so that a renamed attribute is one edit here."""
    state = build_state_at(entries[0].run_id, entries)
    moment = Replay(entries).moment(len(entries) - 1)
    ledger = fold_entries(entries[0].run_id, entries)
    return {
        "run": [state.run_id, state.status, state.state, state.message, state.agent, state.active_agent],
        "for": [state.requester, state.created_by, state.parent_run_id],
        "at": [state.at_seq, state.at, state.started_at],
        "counts": [state.message_count, state.model_requests, state.model_answers, state.tool_calls],
        "usage": msgspec.to_builtins(state.usage),
        "verification": [state.verification.status, state.verification.message],
        "calls": [
            [
                *(call.call_id, call.tool, call.state, call.batch_seq, call.proposed_seq, call.observed_seq, call.ok),
                *(call.duration_ms, call.action_id, call.child_run_id),
            ]
            for call in state.calls
        ],
        "questions": [
            [
                *(asked.action_id, asked.call_id, asked.tool, asked.kind, asked.status, asked.payload_hash),
                *(asked.asked_at, asked.expires_at, asked.asked_seq, asked.answered_seq, asked.executed_seq),
                *(asked.by, asked.reason),
            ]
            for asked in state.questions
        ],
        "conversation": [f"{type(message).__name__}: {message.text[:60]}" for message in moment.conversation],
        "open": [question.action_id for question in moment.questions],
        "menu": ledger.menu_digest,
        "failure": ledger.code,
        "artifacts": sorted(ledger.artifact_ids),
        "tool_state": ledger.tool_state,
        "grants": [[grant.action_id, grant.until] for grant in ledger.grants.values()],
        "checks": msgspec.json.decode(msgspec.json.encode(ledger.checks)),
        "unknown": sorted(ledger.unknown_calls.values()),
        "written": [[action.written_hash, action.answered_at] for action in ledger.actions.values()],
    }


def observations(entries: Sequence[LogEntry]) -> list[list[str]]:
    """Return call id, text for the model and text for the user of every observation, in the order of the log."""
    return [[seen.call_id, render_for_model(seen), render_for_user(seen)] for seen in Replay(entries).observations()]


def view_digests(entries: Sequence[LogEntry]) -> dict[str, str]:
    """Return digests of the run as operators and clients of a run handle see it."""
    events = [step.event for step in Replay(entries)]
    views: dict[str, Callable[[Any], Iterable[Any]]] = {"run": to_run_events, "run_handle": to_run_handle_events}
    return {
        name: sha256(msgspec.json.encode([list(view(event)) for event in events])).hexdigest()
        for name, view in views.items()
    }


def export_digests(entries: Sequence[LogEntry]) -> dict[str, str]:
    """Return the digest of the export in each schema."""
    return {name: sha256(b"".join(export_run(entries, name, host="host-1"))).hexdigest() for name in sorted(SCHEMAS)}


PARTS: Mapping[str, Callable[[Sequence[LogEntry]], Any]] = {
    "outline": outline,
    "state": final_state,
    "observations": observations,
    "views": view_digests,
    "exports": export_digests,
}


def chain_hashes(entries: Sequence[LogEntry]) -> list[bytes]:
    """Compute the hashes as the format says, without the package's own code."""
    hashes, head = list[bytes](), sha256(b"interlock/log/v1\n" + entries[0].run_id.encode()).digest()
    for entry in entries:
        head = sha256(head + entry.body).digest()
        hashes.append(head)
    return hashes


def neutralize(runs: Runs, folder: Path | None = None) -> dict[str, list[LogEntry]]:
    """Return the runs with everything replaced that differs from one recording to the next, and chained again.

    Of runs in a folder of this host, the paths are replaced and the digests are numbered, because they are over content
    that names the host or a duration.
    """
    names, digests = dict[bytes, int](), dict[bytes, int]()
    times = sorted({at for entries in runs.values() for entry in entries for at in _TIME.findall(entry.body)})

    def renamed(match: re.Match[bytes]) -> bytes:
        return b"%s_%032d" % (match[1], names.setdefault(match[0], len(names) + 1))

    def numbered(match: re.Match[bytes]) -> bytes:
        return b"%0*x" % (len(match[0]), digests.setdefault(match[0], len(digests) + 1))

    def clean(body: bytes) -> bytes:
        for pattern, replaced in _REPLACED:
            body = pattern.sub(replaced, body)
        body = _TIME.sub(lambda match: b"%d" % (_FIRST_TIME + times.index(match[0]) * 1_000_000), body)
        body = _NAME.sub(renamed, body)
        if folder is not None:
            for path, neutral in ((folder, WORKSPACE), (sys.prefix, b"/opt/venv"), (_ROOT, b"/opt/interlock")):
                body = body.replace(str(path).encode(), neutral)
            body = _KEPT_AT.sub(rb'"\1"', body)
            body = _DIGEST.sub(numbered, body)
        return body

    return {name: _chain([clean(entry.body) for entry in entries]) for name, entries in runs.items()}


_TIME = re.compile(rb"(?<=:)(?:1[7-9]|2\d)\d{17}(?=[,}])")
_NAME = re.compile(rb"\b(act|run)_[0-9a-f]{32}\b")
_DIGEST = re.compile(rb"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b")
_KEPT_AT = re.compile(rb'"[0-9a-f]{2}/[0-9a-f]{2}/([0-9a-f]{64})"')
_REPLACED = (
    # Written with the version of the recording code, which changes nothing for a reader that knows it.
    (re.compile(rb'("type":"run.started","schema"):\d+'), rb"\1:1"),
    (re.compile(rb'("\w+_ms"):[0-9.e+-]+'), rb"\1:1.5"),
    (re.compile(rb'("peak_memory_bytes"):\d+'), rb"\1:1"),
    (re.compile(rb'("mtime_ns"):"\d+"'), rb'\1:"1650000000000000000"'),
    (re.compile(rb"\b\d+\.\d+s\b"), b"0.01s"),
    (re.compile(rb"\bafter \d+(\.\d+)? s\b"), b"after 0.1 s"),
    (re.compile(rb"interlock-demo-\w{8}"), b"interlock-demo-00000000"),
)


def _chain(bodies: Sequence[bytes]) -> list[LogEntry]:
    places = [msgspec.json.decode(body) for body in bodies]
    entries = [LogEntry(place["run_id"], place["seq"], body, b"") for place, body in zip(places, bodies, strict=True)]
    return [
        msgspec.structs.replace(entry, hash=hash) for entry, hash in zip(entries, chain_hashes(entries), strict=True)
    ]


def facts(entries: Sequence[LogEntry]) -> list[str]:
    """Return every event whole, except for digests, which are over texts that may change by themselves."""
    return [without_digests(entry.body.decode()) for entry in entries]


def untitled(entries: Sequence[LogEntry]) -> list[str]:
    """Return every event whole, except for digests and the titles of questions, which logs of earlier code lack."""
    return [without_digests(_drop_title(entry.body)) for entry in entries]


def _drop_title(body: bytes) -> str:
    event = msgspec.json.decode(body)
    question = event["fact"].get("question")
    if question is None:
        return body.decode()
    event.pop("schema", None)
    return msgspec.json.encode({**event, "fact": {**event["fact"], "question": _without(question)}}).decode()


def _without(question: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in question.items() if name not in ("title", "key_facts")}


def without_digests(text: str) -> str:
    return _ANY_DIGEST.sub("", text)


_ANY_DIGEST = re.compile(r"\b[0-9a-f]{16,64}\b")
