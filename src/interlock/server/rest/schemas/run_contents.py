"""REST schemas of a run's contents: its state at an event, and one call in three views."""

from typing import Any

from ....domain.decision import Decision
from ....domain.event import InvocationCompleted, InvocationStarted
from ....domain.messages import Usage
from ....domain.observation import Observation
from ....domain.state.verification import Verification
from ....history.call_view import CallView, DecisionView, InvocationView, ModelView, QuestionView
from ....history.state_view import CallStateView, QuestionStateView, RunStateView
from ..times import format_optional_time, format_time
from .runs import ActionDetailResponse, ActionStatus, AnswerResponse, ResponseModel, question_fields, to_action_status


class QuestionStateResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of a question."""

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
    def from_domain(cls, question: QuestionStateView) -> "QuestionStateResponse":
        return cls(
            action_id=question.action_id,
            call_id=question.call_id,
            tool=question.tool,
            kind=question.kind,
            status=to_action_status(question.status),
            payload_hash=question.payload_hash,
            created_at=format_time(question.asked_at),
            expires_at=format_optional_time(question.expires_at),
            asked_seq=question.asked_seq,
            answered_seq=question.answered_seq,
            executed_seq=question.executed_seq,
            by=question.by,
            reason=question.reason,
        )


class RunStateResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of a run at one event."""

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
    calls: list[CallStateView]
    questions: list[QuestionStateResponse]
    message_count: int
    model_requests: int
    model_answers: int
    tool_calls: int
    usage: Usage
    verification: Verification

    @classmethod
    def from_domain(cls, state: RunStateView) -> "RunStateResponse":
        return cls(
            run_id=state.run_id,
            at_seq=state.at_seq,
            at=format_time(state.at),
            status=state.status,
            state=state.state,
            agent=state.agent,
            speaker=state.speaker,
            requester=state.requester,
            created_by=state.created_by,
            parent_run_id=state.parent_run_id,
            started_at=format_time(state.started_at),
            message=state.message,
            calls=list(state.calls),
            questions=list(map(QuestionStateResponse.from_domain, state.questions)),
            message_count=state.message_count,
            model_requests=state.model_requests,
            model_answers=state.model_answers,
            tool_calls=state.tool_calls,
            usage=state.usage,
            verification=state.verification,
        )


class CallList(ResponseModel, frozen=True, kw_only=True):
    """Calls of a run."""

    calls: list[CallStateView]


class PersonViewResponse(ResponseModel, frozen=True, kw_only=True):
    """What the person saw of a call."""

    questions: list[ActionDetailResponse]
    #: The one line about the outcome.
    line: str


class PolicyEvaluationResponse(ResponseModel, frozen=True, kw_only=True):
    """One policy evaluation of a call."""

    seq: int
    at: str
    decision: Decision

    @classmethod
    def from_domain(cls, evaluation: DecisionView) -> "PolicyEvaluationResponse":
        return cls(seq=evaluation.seq, at=format_time(evaluation.at), decision=evaluation.decision)


class InvocationResponse(ResponseModel, frozen=True, kw_only=True):
    """One execution of a call."""

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
    def from_domain(cls, invocation: InvocationView) -> "InvocationResponse":
        return cls(
            started_seq=invocation.started_seq,
            started_at=format_time(invocation.started_at),
            started=invocation.started,
            arguments=invocation.arguments,
            ended_seq=invocation.ended_seq if invocation.ended_seq >= 0 else None,
            ended_at=format_optional_time(invocation.ended_at),
            ended=invocation.ended,
            child_run_id=invocation.child_run_id,
        )


class ExecutionViewResponse(ResponseModel, frozen=True, kw_only=True):
    """What was decided and executed for a call."""

    validation_errors: list[str]
    decisions: list[PolicyEvaluationResponse]
    runs: list[InvocationResponse]
    observation: Observation | None
    warnings: list[str]


class CallResponse(ResponseModel, frozen=True, kw_only=True):
    """One call in three views."""

    run_id: str
    call_id: str
    tool: str
    tool_version: str
    proposed_seq: int
    proposed_at: str
    observed_seq: int | None
    observed_at: str | None
    repeated: int
    model_saw: ModelView
    person_saw: PersonViewResponse
    happened: ExecutionViewResponse

    @classmethod
    def from_domain(cls, view: CallView) -> "CallResponse":
        execution = view.happened
        return cls(
            run_id=view.run_id,
            call_id=view.call_id,
            tool=view.tool,
            tool_version=view.tool_version,
            proposed_seq=view.proposed_seq,
            proposed_at=format_time(view.proposed_at),
            observed_seq=view.observed_seq if view.observed_seq >= 0 else None,
            observed_at=format_optional_time(view.observed_at),
            repeated=view.repeated,
            model_saw=view.model_saw,
            person_saw=PersonViewResponse(
                questions=list(map(_to_action_detail, view.person_saw.questions)), line=view.person_saw.line
            ),
            happened=ExecutionViewResponse(
                validation_errors=list(execution.validation_errors),
                decisions=list(map(PolicyEvaluationResponse.from_domain, execution.decisions)),
                runs=list(map(InvocationResponse.from_domain, execution.runs)),
                observation=execution.observation,
                warnings=list(execution.warnings),
            ),
        )


def _to_action_detail(asked: QuestionView) -> ActionDetailResponse:
    return ActionDetailResponse(
        status=to_action_status(asked.status),
        answer=None if asked.answer is None else AnswerResponse.from_domain(asked.answer),
        asked_seq=asked.asked_seq,
        answered_seq=asked.answered_seq if asked.answered_seq >= 0 else None,
        executed_seq=None,
        **question_fields(asked.question),
    )
