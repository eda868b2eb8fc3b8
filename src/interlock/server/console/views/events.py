"""The timeline of a run: one row for every event. Titles are ours; details are from the event, and shown as text. One
table says how each event is shown; others are shown by their type.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ....domain import event as facts
from ....domain.call import Answer, Question
from ....domain.decision import Decision, Verdict
from ....domain.event import Event, LogEntry, decode_event
from ....domain.json import JsonObject
from ....rendering import text as text_rendering
from ..markup import OutlineLine, build_outline

#: The look of a row. The text says the same, for accessibility.
EventTone: TypeAlias = Literal["plain", "turn", "person", "good", "bad", "wait"]
MAX_DETAIL_CHARS = 160


class EventPresentation(msgspec.Struct, frozen=True):
    """How an event is shown."""

    icon: str
    tone: EventTone
    title: str
    detail: str = ""


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the timeline."""

    seq: int
    at: int
    type: str
    told: EventPresentation
    call_id: str = ""
    action_id: str = ""
    #: The run inside the call, where the event is about one.
    child_run_id: str = ""
    #: Whether the model's next turn, or a person's message, begins here.
    begins: str = ""


def build_timeline_row(event: Event) -> TimelineRow:
    fact: Any = event.fact
    present = _PRESENTERS.get(event.type)
    question: Question | None = getattr(fact, "question", None)
    observation = getattr(fact, "observation", None)
    return TimelineRow(
        seq=event.seq,
        at=event.at,
        type=event.type,
        told=EventPresentation("·", "plain", event.type) if present is None else present(fact),
        call_id=getattr(fact, "call_id", "") or (observation.call_id if observation is not None else ""),
        action_id=question.action_id if question is not None else getattr(fact, "action_id", ""),
        child_run_id=getattr(fact, "child_run_id", ""),
        begins=_SECTION_TITLES.get(event.type, ""),
    )


def shorten(text: str) -> str:
    """Return as much of a text as a row shows."""
    return text_rendering.shorten(text, MAX_DETAIL_CHARS)


_SECTION_TITLES: Mapping[str, str] = {"user.message": "Task", "model.request": "Turn of the model"}


def _run_started(fact: facts.RunStarted) -> EventPresentation:
    forked = f"forked from {fact.forked_from} after event {fact.forked_at}" if fact.forked_from else ""
    inside = f"inside {fact.parent_run_id}" if fact.parent_run_id else ""
    return EventPresentation("▶", "plain", "Run started", "; ".join(filter(None, (fact.agent, inside, forked))))


def _run_paused(fact: facts.RunPaused) -> EventPresentation:
    return EventPresentation("‖", "wait", f"Paused: waits for {fact.kind}", f"{len(fact.waiting)} waiting")


def _run_resumed(fact: facts.RunResumed) -> EventPresentation:
    return EventPresentation("▶", "plain", "Resumed")


def _run_completed(fact: facts.RunCompleted) -> EventPresentation:
    return EventPresentation("✓", "good", "Run completed", shorten(fact.message))


def _run_degraded(fact: facts.RunDegraded) -> EventPresentation:
    return EventPresentation("!", "wait", "Run completed with less than was asked for", shorten(fact.message))


def _run_failed(fact: facts.RunFailed) -> EventPresentation:
    return EventPresentation("✗", "bad", "Run failed", shorten(fact.message))


def _run_cancelled(fact: facts.RunCancelled) -> EventPresentation:
    return EventPresentation("✗", "bad", f"Run cancelled{f' by {fact.by}' if fact.by else ''}", shorten(fact.message))


def _tools_offered(fact: facts.ToolsOffered) -> EventPresentation:
    return EventPresentation("≡", "plain", "Tools offered to the model", f"{len(fact.versions)} tools")


def _user_message(fact: facts.UserMessageReceived) -> EventPresentation:
    return EventPresentation("»", "person", f"{fact.by or 'User'} said", shorten(fact.text))


def _model_requested(fact: facts.ModelRequested) -> EventPresentation:
    return EventPresentation("→", "turn", "Model asked", " ".join(filter(None, (fact.provider, fact.model))))


def _model_responded(fact: facts.ModelResponded) -> EventPresentation:
    calls = f"{fact.call_count} call{'s' if fact.call_count != 1 else ''}" if fact.call_count else "no calls"
    return EventPresentation("←", "turn", f"Model answered: {calls}", shorten(fact.text))


def _model_failed(fact: facts.ModelFailed) -> EventPresentation:
    return EventPresentation("✗", "bad", "Model gave no answer", shorten(fact.message))


def _model_answer_refused(fact: facts.FinalAnswerRejected) -> EventPresentation:
    return EventPresentation("✗", "bad", "Answer refused: not what it has to be", shorten(fact.message))


def _claim_contradicted(fact: facts.ClaimContradicted) -> EventPresentation:
    return EventPresentation("!", "bad", "The answer claims what the facts contradict", shorten(fact.message))


def _batch_started(fact: facts.BatchStarted) -> EventPresentation:
    return EventPresentation("⋮", "plain", f"Batch of {fact.call_count} started", f"mode {fact.mode.value}")


def _call_proposed(fact: facts.CallProposed) -> EventPresentation:
    title = f"Model proposed {fact.tool}" + (" again; it is answered from the log" if fact.duplicate else "")
    return EventPresentation("+", "plain", title, shorten(fact.reason))


def _call_validated(fact: facts.CallValidated) -> EventPresentation:
    if fact.ok:
        return EventPresentation("✓", "plain", "Input is valid")
    return EventPresentation("✗", "bad", "Input is not valid", shorten("; ".join(fact.errors)))


_VERDICTS: Mapping[Verdict, tuple[str, EventTone, str]] = {
    Verdict.ALLOW: ("✓", "good", "Allowed"),
    Verdict.ASK: ("?", "wait", "Asks a person"),
    Verdict.REQUEST_INPUT: ("?", "wait", "Asks a person for a value"),
    Verdict.DENY: ("✗", "bad", "Denied"),
}


def _policy_evaluated(fact: facts.PolicyEvaluated) -> EventPresentation:
    icon, tone, title = _VERDICTS[fact.decision.verdict]
    return EventPresentation(icon, tone, f"{title} ({_format_source(fact.decision)})", shorten(fact.decision.reason))


def _format_source(decision: Decision) -> str:
    rules = ", ".join(decision.rule_ids)
    return f"{decision.layer}: {rules}" if rules else decision.layer


_QUESTION_TITLES: Mapping[str, str] = {
    "approval": "Asked for approval",
    "input": "Asked for a value",
    "consent": "Asked for consent",
}


def _question_asked(fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested) -> EventPresentation:
    question = fact.question
    return EventPresentation(
        "?", "wait", _QUESTION_TITLES[question.kind], shorten(question.capability or question.tool_name)
    )


def _present_approval(title: str) -> Callable[[Any], EventPresentation]:
    def tell(fact: Any) -> EventPresentation:
        answer: Answer = fact.answer
        edited = " with edited arguments" if answer.arguments is not None else ""
        return EventPresentation("✓", "person", f"{title}{_format_person(answer)}{edited}", shorten(answer.reason))

    return tell


def _present_refusal(title: str) -> Callable[[Any], EventPresentation]:
    def tell(fact: Any) -> EventPresentation:
        return EventPresentation("✗", "bad", f"{title}{_format_person(fact.answer)}", shorten(fact.answer.reason))

    return tell


def _format_person(answer: Answer) -> str:
    return f" by {answer.by}" if answer.by else ""


def _approval_voided(fact: facts.ApprovalVoided) -> EventPresentation:
    return EventPresentation("!", "wait", "Question void: something changed", shorten(fact.reason))


def _invocation_started(fact: facts.InvocationStarted) -> EventPresentation:
    sandbox = "" if fact.sandbox == "none" else f"in {fact.sandbox}{f' ({fact.profile})' if fact.profile else ''}"
    return EventPresentation("▶", "plain", f"{fact.tool} started", sandbox)


def _invocation_completed(fact: facts.InvocationCompleted) -> EventPresentation:
    outcome = "ended" if fact.code == "ok" else f"ended: {fact.code}"
    return EventPresentation(
        "■", "plain" if fact.code == "ok" else "bad", f"Execution {outcome}", f"{fact.duration_ms:,.0f} ms"
    )


def _invocation_suspended(fact: facts.InvocationSuspended) -> EventPresentation:
    return EventPresentation("‖", "wait", "Waits for the run inside it", fact.child_run_id)


def _call_observed(fact: facts.CallObserved) -> EventPresentation:
    observation = fact.observation
    words = observation.user_text or observation.summary
    if observation.ok:
        return EventPresentation("✓", "good", "Result for the model", shorten(words))
    return EventPresentation("✗", "bad", f"Result for the model: {observation.code}", shorten(words))


def _warning(fact: facts.WarningRaised) -> EventPresentation:
    return EventPresentation("!", "wait", "Warning", shorten(fact.message))


_PRESENTERS: Mapping[str, Callable[[Any], EventPresentation]] = {
    "run.started": _run_started,
    "run.paused": _run_paused,
    "run.resumed": _run_resumed,
    "run.completed": _run_completed,
    "run.degraded": _run_degraded,
    "run.failed": _run_failed,
    "run.cancelled": _run_cancelled,
    "model.menu": _tools_offered,
    "user.message": _user_message,
    "model.request": _model_requested,
    "model.response": _model_responded,
    "model.failed": _model_failed,
    "model.refused": _model_answer_refused,
    "verification.conflict": _claim_contradicted,
    "tool.batch.started": _batch_started,
    "tool.intent": _call_proposed,
    "tool.validation": _call_validated,
    "tool.permission": _policy_evaluated,
    "approval.requested": _question_asked,
    "approval.granted": _present_approval("Approved"),
    "approval.rejected": _present_refusal("Rejected"),
    "approval.expired": _present_refusal("Nobody answered in time"),
    "input.requested": _question_asked,
    "input.provided": _present_approval("Value given"),
    "input.refused": _present_refusal("Value refused"),
    "input.expired": _present_refusal("Nobody gave a value in time"),
    "consent.requested": _question_asked,
    "consent.granted": _present_approval("Consent given"),
    "consent.refused": _present_refusal("Consent refused"),
    "consent.expired": _present_refusal("Nobody consented in time"),
    "approval.voided": _approval_voided,
    "tool.invocation.started": _invocation_started,
    "tool.invocation.completed": _invocation_completed,
    "tool.invocation.suspended": _invocation_suspended,
    "tool.observation": _call_observed,
    "warning": _warning,
}


class EventPanel(msgspec.Struct, frozen=True, kw_only=True):
    """The details of one event."""

    row: TimelineRow
    #: The `seq` of what caused it; None: nothing in this run.
    cause: int | None
    lines: list[OutlineLine]
    #: As JSON in ASCII: what is not is written out, so that every character is there to be seen, and to be copied.
    raw: str
    hash: str


def build_event_panel(entry: LogEntry) -> EventPanel:
    event = decode_event(entry)
    stored = _decode_body(entry.body)
    fact: Any = stored.get("fact", {})
    fields = {key: value for key, value in cast(JsonObject, fact).items() if key != "type"}
    return EventPanel(
        row=build_timeline_row(event),
        cause=event.causation_id,
        lines=build_outline(fields),
        raw=format_json(stored),
        hash=entry.hash.hex(),
    )


def format_json(value: Any) -> str:
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def _decode_body(body: bytes) -> JsonObject:
    return msgspec.json.decode(body, type=dict[str, Any])
