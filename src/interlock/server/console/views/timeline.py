"""The timeline of a run: one row for every event, in words. The words are ours; what stands behind them is from the
event, and is shown as text. One table says how each fact is told; a fact that is not in it is told by its type."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ....domain import event as facts
from ....domain.call import Answer, Question
from ....domain.decision import Decision, Verdict
from ....domain.event import Event

#: What a row looks like. The words say the same, so that nobody needs to see it.
Tone: TypeAlias = Literal["plain", "turn", "person", "good", "bad", "wait"]
MAX_DETAIL_CHARS = 160


class Told(msgspec.Struct, frozen=True):
    icon: str
    tone: Tone
    title: str
    detail: str = ""


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    at: int
    type: str
    told: Told
    call_id: str = ""
    action_id: str = ""
    #: The run inside the call, where the event is about one.
    child_run_id: str = ""
    #: Does the model's next turn, or a person's word, begin here?
    begins: str = ""


def timeline_row(event: Event) -> TimelineRow:
    fact: Any = event.fact
    tell = _TELL.get(event.type)
    question: Question | None = getattr(fact, "question", None)
    observation = getattr(fact, "observation", None)
    return TimelineRow(
        seq=event.seq,
        at=event.at,
        type=event.type,
        told=Told("·", "plain", event.type) if tell is None else tell(fact),
        call_id=getattr(fact, "call_id", "") or (observation.call_id if observation is not None else ""),
        action_id=question.action_id if question is not None else getattr(fact, "action_id", ""),
        child_run_id=getattr(fact, "child_run_id", ""),
        begins=_BEGINS.get(event.type, ""),
    )


def excerpt(text: str, most: int = MAX_DETAIL_CHARS) -> str:
    """The beginning of a text, and how much there is more."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]} [... {more:,} characters more]"


_BEGINS: Mapping[str, str] = {"user.message": "Task", "model.request": "Turn of the model"}


def _run_started(fact: facts.RunStarted) -> Told:
    forked = f"forked from {fact.forked_from} after event {fact.forked_at}" if fact.forked_from else ""
    inside = f"inside {fact.parent_run_id}" if fact.parent_run_id else ""
    return Told("▶", "plain", "Run started", "; ".join(filter(None, (fact.agent, inside, forked))))


def _paused(fact: facts.RunPaused) -> Told:
    return Told("‖", "wait", f"Paused: waits for {fact.kind}", f"{len(fact.waiting)} waiting")


def _resumed(fact: facts.RunResumed) -> Told:
    return Told("▶", "plain", "Resumed")


def _completed(fact: facts.RunCompleted) -> Told:
    return Told("✓", "good", "Run completed", excerpt(fact.message))


def _degraded(fact: facts.RunDegraded) -> Told:
    return Told("!", "wait", "Run completed with less than was asked for", excerpt(fact.message))


def _failed(fact: facts.RunFailed) -> Told:
    return Told("✗", "bad", "Run failed", excerpt(fact.message))


def _cancelled(fact: facts.RunCancelled) -> Told:
    return Told("✗", "bad", f"Run cancelled{f' by {fact.by}' if fact.by else ''}", excerpt(fact.message))


def _menu(fact: facts.MenuShown) -> Told:
    return Told("≡", "plain", "Tools offered to the model", f"{len(fact.versions)} tools")


def _said(fact: facts.UserSaid) -> Told:
    return Told("»", "person", f"{fact.by or 'User'} said", excerpt(fact.text))


def _asked_model(fact: facts.ModelAsked) -> Told:
    return Told("→", "turn", "Model asked", " ".join(filter(None, (fact.provider, fact.model))))


def _model_answered(fact: facts.ModelAnswered) -> Told:
    calls = f"{fact.call_count} call{'s' if fact.call_count != 1 else ''}" if fact.call_count else "no calls"
    return Told("←", "turn", f"Model answered: {calls}", excerpt(fact.text))


def _model_failed(fact: facts.ModelFailed) -> Told:
    return Told("✗", "bad", "Model gave no answer", excerpt(fact.message))


def _answer_refused(fact: facts.AnswerRefused) -> Told:
    return Told("✗", "bad", "Answer refused: not what it has to be", excerpt(fact.message))


def _contradicted(fact: facts.ClaimContradicted) -> Told:
    return Told("!", "bad", "The answer claims what the facts contradict", excerpt(fact.message))


def _batch(fact: facts.BatchStarted) -> Told:
    return Told("⋮", "plain", f"Batch of {fact.call_count} started", f"mode {fact.mode.value}")


def _proposed(fact: facts.CallProposed) -> Told:
    title = f"Model proposed {fact.tool}" + (" again; it is answered from the log" if fact.duplicate else "")
    return Told("+", "plain", title, excerpt(fact.reason))


def _validated(fact: facts.CallValidated) -> Told:
    if fact.ok:
        return Told("✓", "plain", "Input is valid")
    return Told("✗", "bad", "Input is not valid", excerpt("; ".join(fact.errors)))


_JUDGED: Mapping[Verdict, tuple[str, Tone, str]] = {
    Verdict.ALLOW: ("✓", "good", "Allowed"),
    Verdict.ASK: ("?", "wait", "Asks a person"),
    Verdict.REQUEST_INPUT: ("?", "wait", "Asks a person for a value"),
    Verdict.DENY: ("✗", "bad", "Denied"),
}


def _judged(fact: facts.CallJudged) -> Told:
    icon, tone, title = _JUDGED[fact.decision.verdict]
    return Told(icon, tone, f"{title} ({_by(fact.decision)})", excerpt(fact.decision.reason))


def _by(decision: Decision) -> str:
    rules = ", ".join(decision.rule_ids)
    return f"{decision.layer}: {rules}" if rules else decision.layer


_ASKED: Mapping[str, str] = {
    "approval": "Asked for approval",
    "input": "Asked for a value",
    "consent": "Asked for consent",
}


def _asked(fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested) -> Told:
    question = fact.question
    return Told("?", "wait", _ASKED[question.kind], excerpt(question.capability or question.tool_name))


def _yes(title: str) -> Callable[[Any], Told]:
    def tell(fact: Any) -> Told:
        answer: Answer = fact.answer
        edited = " with edited arguments" if answer.arguments is not None else ""
        return Told("✓", "person", f"{title}{_by_whom(answer)}{edited}", excerpt(answer.reason))

    return tell


def _no(title: str) -> Callable[[Any], Told]:
    def tell(fact: Any) -> Told:
        return Told("✗", "bad", f"{title}{_by_whom(fact.answer)}", excerpt(fact.answer.reason))

    return tell


def _by_whom(answer: Answer) -> str:
    return f" by {answer.by}" if answer.by else ""


def _voided(fact: facts.ActionVoided) -> Told:
    return Told("!", "wait", "Question void: something changed", excerpt(fact.reason))


def _started(fact: facts.InvocationStarted) -> Told:
    held = "" if fact.sandbox == "none" else f"in {fact.sandbox}{f' ({fact.profile})' if fact.profile else ''}"
    return Told("▶", "plain", f"{fact.tool} started", held)


def _ended(fact: facts.InvocationCompleted) -> Told:
    went = "ended" if fact.code == "ok" else f"ended: {fact.code}"
    return Told("■", "plain" if fact.code == "ok" else "bad", f"Execution {went}", f"{fact.duration_ms:,.0f} ms")


def _suspended(fact: facts.InvocationSuspended) -> Told:
    return Told("‖", "wait", "Waits for the run inside it", fact.child_run_id)


def _observed(fact: facts.CallObserved) -> Told:
    seen = fact.observation
    words = seen.user_text or seen.summary
    if seen.ok:
        return Told("✓", "good", "Result for the model", excerpt(words))
    return Told("✗", "bad", f"Result for the model: {seen.code}", excerpt(words))


def _warned(fact: facts.Warned) -> Told:
    return Told("!", "wait", "Warning", excerpt(fact.message))


_TELL: Mapping[str, Callable[[Any], Told]] = {
    "run.started": _run_started,
    "run.paused": _paused,
    "run.resumed": _resumed,
    "run.completed": _completed,
    "run.degraded": _degraded,
    "run.failed": _failed,
    "run.cancelled": _cancelled,
    "model.menu": _menu,
    "user.message": _said,
    "model.request": _asked_model,
    "model.response": _model_answered,
    "model.failed": _model_failed,
    "model.refused": _answer_refused,
    "verification.conflict": _contradicted,
    "tool.batch.started": _batch,
    "tool.intent": _proposed,
    "tool.validation": _validated,
    "tool.permission": _judged,
    "approval.requested": _asked,
    "approval.granted": _yes("Approved"),
    "approval.rejected": _no("Rejected"),
    "approval.expired": _no("Nobody answered in time"),
    "input.requested": _asked,
    "input.provided": _yes("Value given"),
    "input.refused": _no("Value refused"),
    "input.expired": _no("Nobody gave a value in time"),
    "consent.requested": _asked,
    "consent.granted": _yes("Consent given"),
    "consent.refused": _no("Consent refused"),
    "consent.expired": _no("Nobody consented in time"),
    "approval.voided": _voided,
    "tool.invocation.started": _started,
    "tool.invocation.completed": _ended,
    "tool.invocation.suspended": _suspended,
    "tool.observation": _observed,
    "warning": _warned,
}
