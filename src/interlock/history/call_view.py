"""One call in three views: the model's, the person's, and what was executed.

Each view has only what its reader had. The model's has its own words and the text that it got back, byte for byte; the
person's has the questions as they were bound and hashed; the last one has what the runtime recorded, with the arguments
that ran, which may differ from those proposed.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from ..domain import event as facts
from ..domain.call import Answer, Question
from ..domain.decision import Decision
from ..domain.event import Event
from ..domain.observation import Observation
from ..domain.rendering import render_for_model, render_for_user
from ..domain.state.ledger import ANSWER_TRIGGERS
from ..domain.state.lifecycle import ACTION_TRANSITIONS, ActionState


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """What the model saw of a call."""

    #: As it came: JSON where it parsed, else text. None: it is too long for the log, and an artifact.
    arguments: Any = None
    arguments_artifact_id: str = ""
    #: The model's stated reason. Never used to decide.
    reason: str = ""
    #: The exact text it got back; None: nothing yet.
    result: str | None = None


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    """One question as shown to the person, and the answer."""

    question: Question
    status: str
    asked_seq: int
    asked_at: int
    answer: Answer | None = None
    answered_seq: int = -1
    answered_at: int = 0
    #: Why the answer no longer counts.
    void_reason: str = ""


class PersonView(msgspec.Struct, frozen=True, kw_only=True):
    """What the person saw of a call."""

    questions: tuple[QuestionView, ...] = ()
    #: The one line about the outcome; empty: there is none yet.
    summary: str = ""


class DecisionView(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about a call."""

    seq: int
    at: int
    decision: Decision


class InvocationView(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the handler."""

    started_seq: int
    started_at: int
    started: facts.InvocationStarted
    #: What ran, with defaults and what a person or a hook changed.
    arguments: Any
    ended_seq: int = -1
    ended_at: int = 0
    #: None: it has not ended, or its outcome is unknown.
    ended: facts.InvocationCompleted | None = None
    child_run_id: str = ""


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime recorded about a call."""

    validation_errors: tuple[str, ...] = ()
    decisions: tuple[DecisionView, ...] = ()
    invocations: tuple[InvocationView, ...] = ()
    #: With failure, exit code, side effects, artifacts and facts; None: it has no outcome yet.
    observation: Observation | None = None
    warnings: tuple[str, ...] = ()


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """One call in three views."""

    run_id: str
    call_id: str
    tool: str
    tool_version: str
    proposed_seq: int
    proposed_at: int
    observed_seq: int = -1
    observed_at: int = 0
    #: How often the same call came; it was executed once.
    repeated: int = 0
    model_view: ModelView
    person_view: PersonView
    execution: ExecutionView


def build_call_view(events: Iterable[Event], call_id: str) -> CallView | None:
    """Build the view of a call; None when the model proposed no such call. `events` may be those of the whole run."""
    return build_call_views(event for event in events if _find_call_id(event.fact) == call_id).get(call_id)


def build_call_views(events: Iterable[Event]) -> dict[str, CallView]:
    """Build the view of every call that these events propose, by its id, in the order of the proposals."""
    seen: dict[str, _CallReader] = {}
    for event in events:
        fact = event.fact
        reader = seen.get(_find_call_id(fact) or "")
        if isinstance(fact, facts.CallProposed):
            if reader is None:
                seen[fact.call_id] = _CallReader(event, fact)
            else:
                reader.repeated += 1
        elif reader is not None:
            reader.apply(event)
    return {call_id: reader.build() for call_id, reader in seen.items()}


def _find_call_id(fact: Any) -> str | None:
    """Return the call that an event is about; None for none."""
    return fact.observation.call_id if isinstance(fact, facts.CallObserved) else getattr(fact, "call_id", None)


class _CallReader:
    """What was read about the call so far."""

    def __init__(self, event: Event, proposed: facts.CallProposed) -> None:
        self.event = event
        self.proposed = proposed
        self.repeated = 0
        self.errors: tuple[str, ...] = ()
        self.decisions: list[DecisionView] = []
        self.asked: dict[str, QuestionView] = {}
        self.ran: list[InvocationView] = []
        self.warnings: list[str] = []
        self.observed: tuple[Event, Observation] | None = None

    def apply(self, event: Event) -> None:
        fact = event.fact
        match fact:
            case facts.CallValidated():
                self.errors = fact.errors
            case facts.PolicyEvaluated():
                self.decisions.append(DecisionView(seq=event.seq, at=event.at, decision=fact.decision))
            case facts.ApprovalRequested() | facts.InputRequested() | facts.ConsentRequested():
                question = fact.question
                self.asked[question.action_id] = QuestionView(
                    question=question, status=ActionState.PENDING.name, asked_seq=event.seq, asked_at=event.at
                )
            case facts.ApprovalVoided():
                self._apply_transition(fact.action_id, "voided", void_reason=fact.reason)
            case facts.InvocationStarted():
                self._apply_start(event, fact)
            case facts.InvocationCompleted() | facts.InvocationSuspended():
                self._apply_end(event, fact)
            case facts.CallObserved():
                self.observed = (event, fact.observation)
            case facts.WarningRaised():
                self.warnings.append(fact.message)
            case _ if word := ANSWER_TRIGGERS.get(type(fact)):
                self._apply_answer(event, word, fact)
            case _:
                pass

    def build(self) -> CallView:
        observed = self.observed
        shown = None if observed is None else observed[1]
        proposed = self.proposed
        return CallView(
            run_id=self.event.run_id,
            call_id=proposed.call_id,
            tool=proposed.tool,
            tool_version=proposed.tool_version,
            proposed_seq=self.event.seq,
            proposed_at=self.event.at,
            observed_seq=-1 if observed is None else observed[0].seq,
            observed_at=0 if observed is None else observed[0].at,
            repeated=self.repeated,
            model_view=ModelView(
                arguments=proposed.raw_input,
                arguments_artifact_id=proposed.raw_artifact_id,
                reason=proposed.reason,
                result=None if shown is None else render_for_model(shown),
            ),
            person_view=PersonView(
                questions=tuple(self.asked.values()), summary="" if shown is None else render_for_user(shown)
            ),
            execution=ExecutionView(
                validation_errors=self.errors,
                decisions=tuple(self.decisions),
                invocations=tuple(self.ran),
                observation=shown,
                warnings=tuple(self.warnings),
            ),
        )

    def _apply_answer(self, event: Event, word: str, fact: Any) -> None:
        self._apply_transition(fact.action_id, word, answer=fact.answer, answered_seq=event.seq, answered_at=event.at)

    def _apply_transition(self, action_id: str, word: str, **changes: Any) -> None:
        """Apply a transition. Ignore one that does not fit: this shows what the log says, and `verify` judges it."""
        asked = self.asked.get(action_id)
        if asked is None:
            return
        after = ACTION_TRANSITIONS[ActionState[asked.status]].get(word)
        status = asked.status if after is None else after.name
        self.asked[action_id] = msgspec.structs.replace(asked, status=status, **changes)

    def _apply_start(self, event: Event, fact: facts.InvocationStarted) -> None:
        if fact.action_id:
            self._apply_transition(fact.action_id, "tool.invocation.started")
        arguments = self.proposed.raw_input if fact.arguments is None else fact.arguments
        self.ran.append(InvocationView(started_seq=event.seq, started_at=event.at, started=fact, arguments=arguments))

    def _apply_end(self, event: Event, fact: facts.InvocationCompleted | facts.InvocationSuspended) -> None:
        for place, ran in enumerate(self.ran):
            if ran.started.invocation_id == fact.invocation_id and ran.ended_seq < 0:
                self.ran[place] = _with_end(ran, event, fact)


def _with_end(
    ran: InvocationView, event: Event, fact: facts.InvocationCompleted | facts.InvocationSuspended
) -> InvocationView:
    if isinstance(fact, facts.InvocationSuspended):
        return msgspec.structs.replace(ran, ended_seq=event.seq, ended_at=event.at, child_run_id=fact.child_run_id)
    changed = ran.arguments if fact.arguments is None else fact.arguments
    return msgspec.structs.replace(ran, ended_seq=event.seq, ended_at=event.at, ended=fact, arguments=changed)
