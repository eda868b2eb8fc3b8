"""Present events to people: one row per type, which the CLI, the console, audit records and the browser read.

A new event needs one row in `events.json`. Titles are ours; details are text from the event, neither cut nor escaped.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ..domain import event as facts
from ..domain.call import CLIENT_CHANNELS, Answer, Channel
from ..domain.decision import Verdict
from ..domain.event import Fact, event_type
from ..domain.observation import Observation
from ..domain.state.lifecycle import RunState
from .run_states import DisplayState, to_display_state
from .text import pluralize, to_compact_json
from .times import format_elapsed

Tone: TypeAlias = Literal["neutral", "success", "warning", "danger"]
Outcome: TypeAlias = Literal["success", "failure", "unknown"]


#: How the executor of a call begins that another program executes, such as a coding agent.
EXTERNAL = "external/"


class EventRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a type of event is shown, and what it is to other systems."""

    title: str
    #: The title in audit records. It is part of what is exported, and does not change.
    record_title: str
    #: How it looks. The words say the same, so that it need not be seen. An icon is a drawing of the console.
    tone: Tone = "neutral"
    icon: str = ""
    #: The heading of what begins with this event in a timeline.
    section: str = ""
    #: `event.category` and `event.type` of ECS.
    category: Literal["process", "api"] = "api"
    type: Literal["start", "end", "change", "info", "allowed", "denied", "access"] = "info"
    #: `activity_id` of OCSF's API Activity: 1 create, 2 read, 3 update, 4 delete, 99 other.
    activity: int = 99
    severity: Literal["informational", "low", "medium", "high"] = "informational"
    #: Where the event itself does not say how it went.
    outcome: Outcome = "unknown"


class EventPresentation(msgspec.Struct, frozen=True):
    """Title, detail, tone and icon with which an event is shown."""

    title: str
    detail: str
    tone: Tone
    icon: str
    section: str = ""


#: By type of event.
EVENT_ROWS: Mapping[str, EventRow] = msgspec.json.decode(
    Path(__file__).with_name("events.json").read_bytes(), type=dict[str, EventRow]
)


#: Of runs that failed because of a person's answer, or because there was none.
_UNFAILED_ROWS = {
    state: msgspec.structs.replace(
        EVENT_ROWS["run.failed"], title=title, record_title=recorded, tone="neutral", icon=icon, severity="medium"
    )
    for state, title, recorded, icon in (
        (DisplayState.REJECTED, "Run rejected", "A run ended because a person rejected a call", "refused"),
        (DisplayState.EXPIRED, "Run expired", "A run ended because no person answered in time", "clock"),
    )
}


def find_event_row(name: str, code: str = "") -> EventRow | None:
    """Return how a type of event is shown; None for an unknown type. `code`: that of the failure of a run."""
    if name == "run.failed":
        return _UNFAILED_ROWS.get(to_display_state(RunState.FAILED, code), EVENT_ROWS[name])
    return EVENT_ROWS.get(name)


def present_event(fact: Fact) -> EventPresentation:
    """Return how an event is shown."""
    row = find_event_row(event_type(fact), getattr(fact, "code", "")) or EVENT_ROWS[event_type(fact)]
    tone, icon = _choose_mark(fact) or (row.tone, row.icon)
    return EventPresentation(row.title, _DETAILS.get(type(fact), _describe)(fact), tone, icon, row.section)


def get_call_id(fact: Any) -> str:
    """Return the id of the call that an event is about; empty for none."""
    return fact.observation.call_id if isinstance(fact, facts.CallObserved) else getattr(fact, "call_id", "")


#: Where an answer was given.
_CHANNELS: Mapping[Channel, str] = {
    "terminal": "at the terminal, proved",
    "cli": "on the command line, proved",
    "console": "in the console, proved",
    "rest": "over REST, proved",
    "callback": "from the program's callback",
}


def describe_channel(answer: Answer) -> str:
    """Return where an answer was given, and whether that is proved or a client claims it; empty when not known."""
    if answer.assurance == "claimed":
        return f"claimed by the client{f' ({answer.channel})' if answer.channel else ''}"
    if answer.channel in CLIENT_CHANNELS:
        return f"through the client ({answer.channel}), which is trusted"
    return _CHANNELS.get(answer.channel, "")


def describe_answerer(answer: Answer) -> str:
    """Return who answered, and where."""
    return _join(", ", f"by {answer.by}" if answer.by else "", describe_channel(answer))


_VERDICTS: Mapping[Verdict, tuple[str, Tone, str]] = {
    Verdict.ALLOW: ("Allowed", "success", "check"),
    Verdict.ASK: ("Asks a person", "warning", "hand"),
    Verdict.REQUEST_INPUT: ("Asks a person for a value", "warning", "question"),
    Verdict.DENY: ("Denied", "danger", "cross"),
}


def _choose_mark(fact: Fact) -> tuple[Tone, str] | None:
    """Return the look where it depends on what the event says."""
    match fact:
        case facts.PolicyEvaluated():
            return _VERDICTS[fact.decision.verdict][1:]
        case facts.CallValidated(ok=False) | facts.CallObserved(observation=Observation(ok=False)):
            return "danger", "cross"
        case facts.InvocationCompleted() if fact.code != "ok":
            return "danger", "cross"
        case _:
            return None


def _join(separator: str, *parts: str) -> str:
    return separator.join(filter(None, parts))


def _describe(fact: Any) -> str:
    """Return what a question, an answer or a message says."""
    if question := getattr(fact, "question", None):
        return _join(": ", question.title, question.prompt)
    if answer := getattr(fact, "answer", None):
        edited = "with edited arguments" if answer.arguments is not None else ""
        return _join(": ", _join(" ", describe_answerer(answer), edited), answer.reason)
    return getattr(fact, "message", "")


def _run_started(fact: facts.RunStarted) -> str:
    where = f"in {fact.workspace}" if fact.workspace else ""
    inside = f"inside {fact.parent_run_id}" if fact.parent_run_id else ""
    forked = f"forked from {fact.forked_from} after event {fact.forked_at}" if fact.forked_from else ""
    return _join("; ", _join(" ", fact.agent, where), inside, forked)


def _model_requested(fact: facts.ModelRequested) -> str:
    choice = f"tool choice {fact.tool_choice}" if fact.tool_choice != "auto" else ""
    about = "for a summary" if fact.purpose else pluralize(fact.message_count, "message")
    size = f"about {fact.estimated_tokens:,} tokens" if fact.estimated_tokens else ""
    return _join(", ", _join(" ", fact.provider, fact.model), about, size, choice)


def _model_responded(fact: facts.ModelResponded) -> str:
    read, written = fact.usage.input_tokens, fact.usage.output_tokens
    calls = pluralize(fact.call_count, "call") if fact.call_count else "no calls"
    tokens = f"{read:,} tokens in, {written:,} out" if read else ""
    return _join(": ", _join(", ", calls, tokens, format_elapsed(fact.duration_ms)), fact.text)


def _context_compacted(fact: facts.ContextCompacted) -> str:
    used = fact.usage.input_tokens + fact.usage.output_tokens
    tokens = f"{used:,} tokens" if used else ""
    about = f"events {fact.first_seq} to {fact.last_seq}"
    return _join(": ", _join(", ", about, tokens, format_elapsed(fact.duration_ms)), fact.summary)


def _call_proposed(fact: facts.CallProposed) -> str:
    raw = fact.raw_input if fact.raw_input is not None else f"{fact.raw_bytes:,} bytes"
    again = "answered from the log, as the same call was before" if fact.duplicate else ""
    return _join("; ", f"{fact.tool} {raw if isinstance(raw, str) else to_compact_json(raw)}", fact.reason, again)


def _policy_evaluated(fact: facts.PolicyEvaluated) -> str:
    decision = fact.decision
    source = _join(": ", decision.layer, ", ".join(decision.rule_ids))
    return _join(": ", _VERDICTS[decision.verdict][0] + (f" ({source})" if source else ""), decision.reason)


def _invocation_started(fact: facts.InvocationStarted) -> str:
    """Return what runs and where. What another program executes has no sandbox of ours."""
    origin = f"{fact.origin} {fact.source}".strip() if fact.origin != "local" else ""
    if fact.executor.startswith(EXTERNAL):
        return _join(", ", fact.tool, origin, f"executed by {fact.executor.removeprefix(EXTERNAL)}")
    sandbox = f"sandbox {fact.sandbox}{f' ({fact.profile})' if fact.profile else ''}"
    return _join(", ", fact.tool, origin, sandbox)


def _invocation_completed(fact: facts.InvocationCompleted) -> str:
    return _join(", ", fact.exit, fact.code if fact.code != "ok" else "", format_elapsed(fact.duration_ms))


def _call_observed(fact: facts.CallObserved) -> str:
    seen = fact.observation
    text = seen.user_text or seen.summary or (seen.failure.message if seen.failure else "")
    return _join(": ", "ok" if seen.ok else seen.code, text)


def _describe_source(fact: facts.McpToolsListed | facts.McpToolsChanged, what: str) -> str:
    held = f"in quarantine: {', '.join(fact.quarantined)}" if fact.quarantined else ""
    return _join("; ", _join(": ", fact.server, what), held)


#: What a person wants to know of an event, in a few words, where it is more than `_describe` says.
_DETAILS: Mapping[type, Callable[[Any], str]] = {
    facts.RunStarted: _run_started,
    facts.RunPaused: lambda fact: f"waits for {fact.kind}: {pluralize(len(fact.waiting), 'question')}",
    facts.RunCancelled: lambda fact: _join(": ", f"by {fact.by}" if fact.by not in fact.message else "", fact.message),
    facts.ToolsOffered: lambda fact: f"{pluralize(len(fact.versions), 'tool')}: {', '.join(fact.versions)}",
    facts.McpServerConnected: lambda fact: _join(
        ", ", _join(": ", fact.server, " ".join(fact.command) or fact.url), f"protocol {fact.protocol}"
    ),
    facts.McpToolsListed: lambda fact: _describe_source(fact, f"{pluralize(len(fact.versions), 'tool')}"),
    facts.McpToolsChanged: lambda fact: _describe_source(
        fact,
        _join(
            ", ",
            f"changed {', '.join(fact.changed)}" if fact.changed else "",
            f"new {', '.join(fact.added)}" if fact.added else "",
            f"gone {', '.join(fact.removed)}" if fact.removed else "",
        ),
    ),
    facts.McpServerLost: lambda fact: _join(": ", fact.server, fact.reason),
    facts.UserMessageReceived: lambda fact: _join(
        ": ", fact.by, _join(" ", fact.text, f"[{pluralize(len(fact.parts), 'attachment')}]" if fact.parts else "")
    ),
    facts.ModelRequested: _model_requested,
    facts.ModelResponded: _model_responded,
    facts.ContextTrimmed: lambda fact: (
        f"{pluralize(len(fact.outputs), 'output')} of events {fact.first_seq} to {fact.last_seq}"
    ),
    facts.ContextCompacted: _context_compacted,
    facts.ClaimContradicted: lambda fact: f"{fact.message}{' The model is informed.' if fact.told else ''}",
    facts.BatchStarted: lambda fact: f"{pluralize(fact.call_count, 'call')}, mode {fact.mode}",
    facts.CallProposed: _call_proposed,
    facts.CallValidated: lambda fact: "valid" if fact.ok else "; ".join(fact.errors),
    facts.PolicyEvaluated: _policy_evaluated,
    facts.CallTried: lambda fact: _join(
        ", ",
        fact.outcome,
        f"would change {pluralize(fact.change_count, 'file')}" if fact.change_count else "changes nothing",
        f"tried to reach {', '.join(fact.hosts)}" if fact.hosts else "",
    ),
    facts.ApprovalVoided: lambda fact: fact.reason,
    facts.InvocationStarted: _invocation_started,
    facts.InvocationCompleted: _invocation_completed,
    facts.InvocationSuspended: lambda fact: f"waits for {fact.child_run_id}",
    facts.CallObserved: _call_observed,
}
