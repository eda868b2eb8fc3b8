"""The inside of a run as REST shows it: its state at an event, and one call in three lenses."""

from typing import Any

from ....domain.decision import Decision
from ....domain.event import InvocationCompleted, InvocationStarted
from ....domain.messages import Usage
from ....domain.observation import Observation
from ....domain.state.verification import Verification
from ....history.call_view import Asked, CallView, Judged, ModelSaw, Ran
from ....history.state_view import CallThen, QuestionThen, StateThen
from ..times import moment, when
from .runs import ActionStatus, AnswerShape, AskedShape, Shape, action_status, of_question


class QuestionThenShape(Shape, frozen=True, kw_only=True):
    action_id: str
    call_id: str
    tool: str
    kind: str
    status: ActionStatus
    payload_hash: str
    created_at: str
    expires_at: str | None
    asked_seq: int
    #: -1: not yet, or never.
    answered_seq: int
    executed_seq: int
    by: str
    reason: str

    @classmethod
    def of(cls, then: QuestionThen) -> "QuestionThenShape":
        return cls(
            action_id=then.action_id,
            call_id=then.call_id,
            tool=then.tool,
            kind=then.kind,
            status=action_status(then.status),
            payload_hash=then.payload_hash,
            created_at=moment(then.asked_at),
            expires_at=when(then.expires_at),
            asked_seq=then.asked_seq,
            answered_seq=then.answered_seq,
            executed_seq=then.executed_seq,
            by=then.by,
            reason=then.reason,
        )


class StateShape(Shape, frozen=True, kw_only=True):
    run_id: str
    at_seq: int
    at: str
    status: str
    state: str
    agent: str
    speaker: str
    requester: str
    created_by: str
    parent_run_id: str
    started_at: str
    message: str
    calls: list[CallThen]
    questions: list[QuestionThenShape]
    message_count: int
    model_requests: int
    model_answers: int
    tool_calls: int
    usage: Usage
    verification: Verification

    @classmethod
    def of(cls, then: StateThen) -> "StateShape":
        return cls(
            run_id=then.run_id,
            at_seq=then.at_seq,
            at=moment(then.at),
            status=then.status,
            state=then.state,
            agent=then.agent,
            speaker=then.speaker,
            requester=then.requester,
            created_by=then.created_by,
            parent_run_id=then.parent_run_id,
            started_at=moment(then.started_at),
            message=then.message,
            calls=list(then.calls),
            questions=list(map(QuestionThenShape.of, then.questions)),
            message_count=then.message_count,
            model_requests=then.model_requests,
            model_answers=then.model_answers,
            tool_calls=then.tool_calls,
            usage=then.usage,
            verification=then.verification,
        )


class CallList(Shape, frozen=True, kw_only=True):
    calls: list[CallThen]


class PersonSawShape(Shape, frozen=True, kw_only=True):
    questions: list[AskedShape]
    #: The one line about the outcome.
    line: str


class JudgedShape(Shape, frozen=True, kw_only=True):
    seq: int
    at: str
    decision: Decision

    @classmethod
    def of(cls, judged: Judged) -> "JudgedShape":
        return cls(seq=judged.seq, at=moment(judged.at), decision=judged.decision)


class RanShape(Shape, frozen=True, kw_only=True):
    started_seq: int
    started_at: str
    started: InvocationStarted
    #: What ran, with defaults and what a person or a hook changed.
    arguments: Any
    ended_seq: int | None
    ended_at: str | None
    ended: InvocationCompleted | None
    child_run_id: str

    @classmethod
    def of(cls, ran: Ran) -> "RanShape":
        return cls(
            started_seq=ran.started_seq,
            started_at=moment(ran.started_at),
            started=ran.started,
            arguments=ran.arguments,
            ended_seq=ran.ended_seq if ran.ended_seq >= 0 else None,
            ended_at=when(ran.ended_at),
            ended=ran.ended,
            child_run_id=ran.child_run_id,
        )


class HappenedShape(Shape, frozen=True, kw_only=True):
    validation_errors: list[str]
    decisions: list[JudgedShape]
    runs: list[RanShape]
    observation: Observation | None
    warnings: list[str]


class CallShape(Shape, frozen=True, kw_only=True):
    run_id: str
    call_id: str
    tool: str
    tool_version: str
    proposed_seq: int
    proposed_at: str
    observed_seq: int | None
    observed_at: str | None
    repeated: int
    model_saw: ModelSaw
    person_saw: PersonSawShape
    happened: HappenedShape

    @classmethod
    def of(cls, view: CallView) -> "CallShape":
        happened = view.happened
        return cls(
            run_id=view.run_id,
            call_id=view.call_id,
            tool=view.tool,
            tool_version=view.tool_version,
            proposed_seq=view.proposed_seq,
            proposed_at=moment(view.proposed_at),
            observed_seq=view.observed_seq if view.observed_seq >= 0 else None,
            observed_at=when(view.observed_at),
            repeated=view.repeated,
            model_saw=view.model_saw,
            person_saw=PersonSawShape(
                questions=list(map(_asked, view.person_saw.questions)), line=view.person_saw.line
            ),
            happened=HappenedShape(
                validation_errors=list(happened.validation_errors),
                decisions=list(map(JudgedShape.of, happened.decisions)),
                runs=list(map(RanShape.of, happened.runs)),
                observation=happened.observation,
                warnings=list(happened.warnings),
            ),
        )


def _asked(asked: Asked) -> AskedShape:
    return AskedShape(
        status=action_status(asked.status),
        answer=None if asked.answer is None else AnswerShape.of(asked.answer),
        asked_seq=asked.asked_seq,
        answered_seq=asked.answered_seq if asked.answered_seq >= 0 else None,
        executed_seq=None,
        **of_question(asked.question),
    )
