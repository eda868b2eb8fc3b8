"""The state of a run as of one of its events.

It is the fold of the events up to there and nothing else, so it always agrees with the runtime.
"""

from collections.abc import Iterable

import msgspec

from ..domain.event import LogEntry, decode_event
from ..domain.messages import Usage
from ..domain.state.conversation import ContextChange
from ..domain.state.ledger import ActionEntry, CallEntry, Ledger
from ..domain.state.lifecycle import RUN_STATUS
from ..domain.state.verification import Verification
from ..rendering.run_states import to_display_state
from .fold import fold_entries


class CallStateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a call."""

    call_id: str
    tool: str
    state: str
    #: Of the event that began its turn, of its own first event, and of its outcome; -1: there is none.
    batch_seq: int
    proposed_seq: int
    observed_seq: int
    #: None: it has no outcome yet.
    ok: bool | None = None
    #: None: its handler did not run, or has not ended.
    duration_ms: float | None = None
    action_id: str = ""
    child_run_id: str = ""


class QuestionStateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a question."""

    action_id: str
    call_id: str
    tool: str
    kind: str
    status: str
    payload_hash: str
    asked_at: int
    expires_at: int
    asked_seq: int
    #: -1: not yet, or never.
    answered_seq: int
    executed_seq: int
    #: 0: it is not answered.
    answered_at: int = 0
    by: str = ""
    reason: str = ""
    #: Where it was answered, and whether that is proved or a client claims it. Empty: not answered, or not known.
    channel: str = ""
    assurance: str = ""


class RunStateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at one event."""

    run_id: str
    #: The last event that counts, and when it happened. -1: none, the run had not begun.
    at_seq: int
    at: int
    #: One of the five words, and the finer one behind it.
    status: str
    state: str
    agent: str
    #: The agent whose turn it is.
    active_agent: str
    requester: str
    created_by: str
    parent_run_id: str
    started_at: int
    message: str
    #: The code of a failed run; empty for none.
    code: str
    calls: tuple[CallStateView, ...]
    questions: tuple[QuestionStateView, ...]
    message_count: int
    model_requests: int
    model_answers: int
    tool_calls: int
    usage: Usage
    #: When older messages were left out of what the model sees, or replaced by a summary.
    context_changes: tuple[ContextChange, ...]
    verification: Verification


def build_state_at(run_id: str, entries: Iterable[LogEntry]) -> RunStateView:
    """Build the state. `entries` are the first events of the run, up to the wanted one. Raise `LogCorruptError` when
    they fail verification.
    """
    known = list(entries)
    at = decode_event(known[-1]).at if known else 0
    return build_state_view(fold_entries(run_id, known), at)


def build_state_view(ledger: Ledger, at: int) -> RunStateView:
    """Build the view of a run's state from its ledger."""
    dialogue = ledger.dialogue
    return RunStateView(
        run_id=ledger.run_id,
        at_seq=ledger.next_seq - 1,
        at=at,
        status=RUN_STATUS[ledger.state],
        state=to_display_state(ledger.state, ledger.code).value,
        agent=ledger.agent,
        active_agent=ledger.active_agent,
        requester=ledger.requester,
        created_by=ledger.created_by,
        parent_run_id=ledger.parent_run_id,
        started_at=ledger.started_at,
        message=ledger.message,
        code=ledger.code,
        calls=tuple(_call_view(call_id, call) for call_id, call in ledger.calls.items()),
        questions=tuple(map(_question_view, ledger.actions.values())),
        message_count=len(dialogue.messages) + len(dialogue.open_messages),
        model_requests=dialogue.requests,
        model_answers=dialogue.answers,
        tool_calls=dialogue.tool_calls,
        usage=dialogue.usage,
        context_changes=tuple(dialogue.context_changes),
        verification=ledger.checks.summarize(),
    )


def _call_view(call_id: str, call: CallEntry) -> CallStateView:
    return CallStateView(
        call_id=call_id,
        tool=call.tool,
        state=call.state.value,
        batch_seq=call.batch,
        proposed_seq=call.proposed_seq,
        observed_seq=call.observed_seq,
        ok=call.ok if call.observed_seq >= 0 else None,
        duration_ms=call.latency_ms,
        action_id=call.action_id,
        child_run_id=call.child_run_id,
    )


def _question_view(entry: ActionEntry) -> QuestionStateView:
    question, answer = entry.question, entry.answer
    return QuestionStateView(
        action_id=question.action_id,
        call_id=question.call_id,
        tool=question.tool_name,
        kind=question.kind,
        status=entry.state.name,
        payload_hash=question.payload_hash,
        asked_at=question.asked_at,
        expires_at=question.expires_at,
        asked_seq=entry.asked_seq,
        answered_seq=entry.answered_seq,
        executed_seq=entry.executed_seq,
        answered_at=entry.answered_at,
        by="" if answer is None else answer.by,
        reason="" if answer is None else answer.reason,
        channel="" if answer is None else answer.channel,
        assurance=answer.assurance if answer is not None and answer.is_qualified else "",
    )
