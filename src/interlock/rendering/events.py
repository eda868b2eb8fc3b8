"""Present events to people: one row per type, which the CLI, the console, audit records and the browser read.

A new event needs one row here. Titles are ours; details are text from the event, neither cut nor escaped.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..domain import event as facts
from ..domain.decision import Verdict
from ..domain.event import Fact, event_type
from .text import pluralize, to_compact_json
from .times import format_elapsed

Tone: TypeAlias = Literal["neutral", "success", "warning", "danger"]


class Mark(NamedTuple):
    """How an event looks. The words say the same, so that it need not be seen."""

    tone: Tone
    #: The name of a drawing of the console.
    icon: str


class EventRow(msgspec.Struct, frozen=True):
    title: str
    #: The title in audit records. It is part of what is exported, and does not change.
    record_title: str
    mark: Mark
    #: What a person wants to know of this event, in a few words.
    detail: Callable[[Any], str]
    #: Where the look depends on what the event says; `mark` otherwise.
    choose_mark: Callable[[Any], Mark] | None = None
    #: The heading of what begins with this event in a timeline.
    section: str = ""


class EventPresentation(msgspec.Struct, frozen=True):
    title: str
    detail: str
    tone: Tone
    icon: str
    section: str = ""


def present_event(fact: Fact) -> EventPresentation:
    """Return how an event is shown."""
    row = EVENT_ROWS[event_type(fact)]
    mark = row.mark if row.choose_mark is None else row.choose_mark(fact)
    return EventPresentation(row.title, row.detail(fact), mark.tone, mark.icon, row.section)


def get_call_id(fact: Any) -> str:
    """Return the id of the call that an event is about; empty for none."""
    return fact.observation.call_id if isinstance(fact, facts.CallObserved) else getattr(fact, "call_id", "")


_SUCCESS, _FAILURE = Mark("success", "check"), Mark("danger", "cross")
_VERDICTS: Mapping[Verdict, tuple[str, Mark]] = {
    Verdict.ALLOW: ("Allowed", _SUCCESS),
    Verdict.ASK: ("Asks a person", Mark("warning", "hand")),
    Verdict.REQUEST_INPUT: ("Asks a person for a value", Mark("warning", "question")),
    Verdict.DENY: ("Denied", _FAILURE),
}


def _join(separator: str, *parts: str) -> str:
    return separator.join(filter(None, parts))


def _run_started(fact: facts.RunStarted) -> str:
    where = f"in {fact.workspace}" if fact.workspace else ""
    inside = f"inside {fact.parent_run_id}" if fact.parent_run_id else ""
    forked = f"forked from {fact.forked_from} after event {fact.forked_at}" if fact.forked_from else ""
    return _join("; ", _join(" ", fact.agent, where), inside, forked)


def _run_paused(fact: facts.RunPaused) -> str:
    return f"waits for {fact.kind}: {pluralize(len(fact.waiting), 'question')}"


def _run_resumed(_: facts.RunResumed) -> str:
    return ""


def _run_cancelled(fact: facts.RunCancelled) -> str:
    by = f"by {fact.by}" if fact.by not in fact.message else ""
    return _join(": ", by, fact.message)


def _message(fact: Any) -> str:
    return fact.message


def _tools_offered(fact: facts.ToolsOffered) -> str:
    return f"{pluralize(len(fact.versions), 'tool')}: {', '.join(fact.versions)}"


def _user_message(fact: facts.UserMessageReceived) -> str:
    return _join(": ", fact.by, fact.text)


def _model_requested(fact: facts.ModelRequested) -> str:
    choice = f"tool choice {fact.tool_choice}" if fact.tool_choice != "auto" else ""
    return _join(", ", _join(" ", fact.provider, fact.model), pluralize(fact.message_count, "message"), choice)


def _model_responded(fact: facts.ModelResponded) -> str:
    read, written = fact.usage.input_tokens, fact.usage.output_tokens
    calls = pluralize(fact.call_count, "call") if fact.call_count else "no calls"
    tokens = f"{read:,} tokens in, {written:,} out" if read else ""
    return _join(": ", _join(", ", calls, tokens, format_elapsed(fact.duration_ms)), fact.text)


def _claim_contradicted(fact: facts.ClaimContradicted) -> str:
    return f"{fact.message}{' The model is told.' if fact.told else ''}"


def _batch_started(fact: facts.BatchStarted) -> str:
    return f"{pluralize(fact.call_count, 'call')}, mode {fact.mode}"


def _call_proposed(fact: facts.CallProposed) -> str:
    raw = fact.raw_input if fact.raw_input is not None else f"{fact.raw_bytes:,} bytes"
    again = "answered from the log, as the same call was before" if fact.duplicate else ""
    return _join("; ", f"{fact.tool} {raw if isinstance(raw, str) else to_compact_json(raw)}", fact.reason, again)


def _call_validated(fact: facts.CallValidated) -> str:
    return "valid" if fact.ok else "; ".join(fact.errors)


def _policy_evaluated(fact: facts.PolicyEvaluated) -> str:
    decision = fact.decision
    source = _join(": ", decision.layer, ", ".join(decision.rule_ids))
    return _join(": ", _VERDICTS[decision.verdict][0] + (f" ({source})" if source else ""), decision.reason)


def _question(fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested) -> str:
    return fact.question.prompt


def _answer(fact: Any) -> str:
    answer = fact.answer
    edited = "with edited arguments" if answer.arguments is not None else ""
    return _join(": ", _join(" ", f"by {answer.by}" if answer.by else "", edited), answer.reason)


def _approval_voided(fact: facts.ApprovalVoided) -> str:
    return fact.reason


def _invocation_started(fact: facts.InvocationStarted) -> str:
    return f"{fact.tool}, sandbox {fact.sandbox}{f' ({fact.profile})' if fact.profile else ''}"


def _invocation_completed(fact: facts.InvocationCompleted) -> str:
    return _join(", ", fact.exit, fact.code if fact.code != "ok" else "", format_elapsed(fact.duration_ms))


def _invocation_suspended(fact: facts.InvocationSuspended) -> str:
    return f"waits for {fact.child_run_id}"


def _call_observed(fact: facts.CallObserved) -> str:
    seen = fact.observation
    text = seen.user_text or seen.summary or (seen.failure.message if seen.failure else "")
    return _join(": ", "ok" if seen.ok else seen.code, text)


_RUNNING, _MODEL, _TOOL = Mark("neutral", "running"), Mark("neutral", "spark"), Mark("neutral", "tool")
_CALLS, _VALID, _WARNING = Mark("neutral", "next"), Mark("neutral", "check"), Mark("warning", "warning")
_EXPIRED, _WAITING = Mark("danger", "clock"), Mark("warning", "hand")
_VALUE, _CONSENT = Mark("warning", "question"), Mark("warning", "key")

#: By type of event.
EVENT_ROWS: Mapping[str, EventRow] = {
    "run.started": EventRow("Run started", "A run started", _RUNNING, _run_started),
    "run.paused": EventRow("Run paused", "A run waits for a person", _WAITING, _run_paused),
    "run.resumed": EventRow("Run resumed", "A run went on", _RUNNING, _run_resumed),
    "run.completed": EventRow("Run completed", "A run completed", _SUCCESS, _message),
    "run.degraded": EventRow(
        "Run degraded", "A run completed with less than it should", Mark("warning", "partly"), _message
    ),
    "run.failed": EventRow("Run failed", "A run failed", _FAILURE, _message),
    "run.cancelled": EventRow("Run cancelled", "A run was cancelled", Mark("danger", "stop"), _run_cancelled),
    "model.menu": EventRow("Tools offered to the model", "A model was shown its tools", _TOOL, _tools_offered),
    "user.message": EventRow(
        "User message", "A person said something", Mark("neutral", "person"), _user_message, section="Task"
    ),
    "model.request": EventRow("Model asked", "A model was asked", _MODEL, _model_requested, section="Model turn"),
    "model.response": EventRow("Model answered", "A model answered", _MODEL, _model_responded),
    "model.failed": EventRow("The model gave no answer", "A model gave no answer", _FAILURE, _message),
    "model.refused": EventRow("Final answer rejected", "A final answer was refused", _WARNING, _message),
    "verification.conflict": EventRow(
        "The answer contradicts the facts",
        "A claim contradicts the facts",
        Mark("danger", "warning"),
        _claim_contradicted,
    ),
    "tool.batch.started": EventRow("Batch started", "A model proposed calls", _CALLS, _batch_started),
    "tool.intent": EventRow("Call proposed", "A call was proposed", _CALLS, _call_proposed),
    "tool.validation": EventRow(
        "Input validated",
        "A call was validated",
        _VALID,
        _call_validated,
        lambda fact: _VALID if fact.ok else _FAILURE,
    ),
    "tool.permission": EventRow(
        "Policy decision",
        "A call was judged",
        Mark("neutral", "policy"),
        _policy_evaluated,
        lambda fact: _VERDICTS[fact.decision.verdict][1],
    ),
    "approval.requested": EventRow("Asked for approval", "A person was asked for approval", _WAITING, _question),
    "approval.granted": EventRow("Approved", "A call was approved", _SUCCESS, _answer),
    "approval.rejected": EventRow("Rejected", "A call was rejected", _FAILURE, _answer),
    "approval.expired": EventRow("Not answered in time", "Nobody approved in time", _EXPIRED, _answer),
    "approval.voided": EventRow(
        "Question void", "A question or an answer is void", Mark("warning", "stop"), _approval_voided
    ),
    "input.requested": EventRow("Asked for a value", "A person was asked for a value", _VALUE, _question),
    "input.provided": EventRow("Value given", "A value was given", _SUCCESS, _answer),
    "input.refused": EventRow("Value refused", "A value was refused", _FAILURE, _answer),
    "input.expired": EventRow("No value in time", "Nobody gave a value in time", _EXPIRED, _answer),
    "consent.requested": EventRow("Asked for consent", "A user was asked for consent", _CONSENT, _question),
    "consent.granted": EventRow("Consent given", "A user consented", _SUCCESS, _answer),
    "consent.refused": EventRow("Consent refused", "A user did not consent", _FAILURE, _answer),
    "consent.expired": EventRow("No consent in time", "A user did not consent in time", _EXPIRED, _answer),
    "tool.invocation.started": EventRow("Call started", "A call started", _TOOL, _invocation_started),
    "tool.invocation.completed": EventRow(
        "Call ended",
        "A call ended",
        _VALID,
        _invocation_completed,
        lambda fact: _VALID if fact.code == "ok" else _FAILURE,
    ),
    "tool.invocation.suspended": EventRow(
        "Call waits for the run inside it", "A call waits for the run inside it", _WAITING, _invocation_suspended
    ),
    "tool.observation": EventRow(
        "Result for the model",
        "A call was observed",
        _SUCCESS,
        _call_observed,
        lambda fact: _SUCCESS if fact.observation.ok else _FAILURE,
    ),
    "warning": EventRow("Warning", "A warning", _WARNING, _message),
}
