"""The state of a run as of one of its events: what somebody would have seen who looked at that moment.

It is the fold of the events up to there and nothing else, so it cannot disagree with what the runtime went by.
"""

from collections.abc import Iterable

import msgspec

from ..domain.chain import Entry, decode_event
from ..domain.messages import Usage
from ..domain.state.ledger import ActionEntry, CallEntry, Ledger
from ..domain.state.lifecycle import RUN_STATUS
from ..domain.state.verification import Verification
from .fold import fold


class CallThen(msgspec.Struct, frozen=True, kw_only=True):
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


class QuestionThen(msgspec.Struct, frozen=True, kw_only=True):
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
    by: str = ""
    reason: str = ""


class StateThen(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    #: The last event that counts, and when it happened. -1: none, the run had not begun.
    at_seq: int
    at: int
    #: One of the five words, and the finer one behind it.
    status: str
    state: str
    agent: str
    #: The agent whose turn it is.
    speaker: str
    requester: str
    created_by: str
    parent_run_id: str
    started_at: int
    message: str
    calls: tuple[CallThen, ...]
    questions: tuple[QuestionThen, ...]
    message_count: int
    model_requests: int
    model_answers: int
    tool_calls: int
    usage: Usage
    verification: Verification


def state_as_of(run_id: str, entries: Iterable[Entry]) -> StateThen:
    """`entries` are the first events of the run, up to the one that counts. `LogCorruptError` when they are not what
    was written."""
    told = list(entries)
    at = decode_event(told[-1]).at if told else 0
    return state_of(fold(run_id, told), at)


def state_of(ledger: Ledger, at: int) -> StateThen:
    dialogue = ledger.dialogue
    return StateThen(
        run_id=ledger.run_id,
        at_seq=ledger.next_seq - 1,
        at=at,
        status=RUN_STATUS[ledger.state],
        state=ledger.state.value,
        agent=ledger.agent,
        speaker=ledger.speaker,
        requester=ledger.requester,
        created_by=ledger.created_by,
        parent_run_id=ledger.parent_run_id,
        started_at=ledger.started_at,
        message=ledger.message,
        calls=tuple(_call(call_id, call) for call_id, call in ledger.calls.items()),
        questions=tuple(map(_question, ledger.actions.values())),
        message_count=len(dialogue.messages) + len(dialogue.under_way),
        model_requests=dialogue.requests,
        model_answers=dialogue.answers,
        tool_calls=dialogue.tool_calls,
        usage=dialogue.usage,
        verification=ledger.checks.verdict(),
    )


def _call(call_id: str, call: CallEntry) -> CallThen:
    return CallThen(
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


def _question(entry: ActionEntry) -> QuestionThen:
    question, answer = entry.question, entry.answer
    return QuestionThen(
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
        by="" if answer is None else answer.by,
        reason="" if answer is None else answer.reason,
    )
