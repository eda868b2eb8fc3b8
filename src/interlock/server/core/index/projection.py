"""The projection of events to index rows: one small function per event type, without folding.

The states come from the tables of `domain/state/lifecycle`, so they are those of the run's ledger. An event that
cannot be read or does not fit marks the row of its run and changes nothing else: what comes after it is applied as far
as it fits, and other runs are not affected.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from ....domain import event as facts
from ....domain.errors import IllegalTransitionError
from ....domain.event import Event
from ....domain.rendering import truncate
from ....domain.state.lifecycle import ACTION_TRANSITIONS, RUN_TRANSITIONS, ActionState, RunState, next_state
from ..live.live_event import LiveEvent
from .row_buffer import MAX_TEXT_CHARS, UNANSWERED_STATUS, IndexedAction, IndexedRun, RowBuffer, clamp_integer
from .rows import DamagedRun

_encode = msgspec.json.Encoder().encode


class _EventContext(NamedTuple):
    """An event in its place, with the rows that it changes."""

    event: Event
    position: int
    run: IndexedRun
    rows: RowBuffer


def apply_event(live: LiveEvent, rows: RowBuffer) -> IndexedRun:
    """Apply an event to the rows, and return the row of its run, damaged or not."""
    entry, event = live.entry, live.event
    run_id = str(entry.run_id)  # a file edited by hand may have anything there
    run = rows.get_run(run_id) or rows.add_run(IndexedRun(number=live.position, run_id=run_id))
    expected = run.last_seq + 1
    if entry.seq != expected:
        _mark_damaged(run, rows, expected, f"event {entry.seq} comes in its place")
    run.last_seq = entry.seq if type(entry.seq) is int else expected
    if event is None:
        _mark_damaged(run, rows, run.last_seq, live.problem)
        return run
    run.updated_at = clamp_integer(event.at)
    run.created_at = run.created_at or run.updated_at
    try:
        handler = _HANDLERS.get(type(event.fact))
        if handler is not None:
            handler(_EventContext(event, live.position, run, rows), event.fact)
    except IllegalTransitionError as error:
        _mark_damaged(run, rows, entry.seq, str(error))
    return run


def apply_damage(damaged: DamagedRun, rows: RowBuffer) -> None:
    """Apply to the rows that a run is damaged, and that it was closed, if it was."""
    run = rows.get_run(damaged.run_id)
    if run is None:
        return
    _mark_damaged(run, rows, max(run.last_seq, 0), damaged.problem)
    run.message = truncate(damaged.message, MAX_TEXT_CHARS)
    if damaged.closed_by:
        run.state = RunState.CANCELLED


def _mark_damaged(run: IndexedRun, rows: RowBuffer, seq: int, reason: str) -> None:
    """Mark the run as damaged, and take its questions out of the lists: they cannot be answered."""
    run.mark_damaged(seq, reason)
    run.open_questions = 0
    rows.mark_unanswered(run.run_id)


def _apply_run_started(context: _EventContext, fact: facts.RunStarted) -> None:
    run = context.run
    if run.begun:
        raise IllegalTransitionError(f"{run.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise IllegalTransitionError(f"it was written with event schema {fact.schema}, which is newer than this server")
    run.begun = True
    run.agent, run.parent = fact.agent, fact.parent_run_id
    # A child run acts for the same user as its parent.
    parent = context.rows.get_run(fact.parent_run_id) if fact.parent_run_id else None
    run.requester = fact.requester or (parent.requester if parent else "")
    run.created_by = fact.created_by or (parent.created_by if parent else "")


def _apply_user_said(context: _EventContext, fact: facts.UserMessageReceived) -> None:
    context.run.task = context.run.task or truncate(fact.text, MAX_TEXT_CHARS)


def _apply_run_paused(context: _EventContext, fact: facts.RunPaused) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, f"paused for {fact.kind}")


def _apply_run_resumed(context: _EventContext, fact: facts.RunResumed) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, facts.event_type(fact))


def _apply_run_ended(
    context: _EventContext, fact: facts.RunCompleted | facts.RunDegraded | facts.RunFailed | facts.RunCancelled
) -> None:
    run = context.run
    run.state = next_state(RUN_TRANSITIONS, run.state, facts.event_type(fact))
    if run.damaged_at < 0:
        run.message = truncate(fact.message, MAX_TEXT_CHARS)
    run.open_questions = 0
    context.rows.mark_unanswered(run.run_id)


def _apply_question_asked(
    context: _EventContext, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested
) -> None:
    question, run = fact.question, context.run
    if context.rows.get_action(run.run_id, question.action_id) is not None:
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    is_open = not run.state.is_over and run.damaged_at < 0
    context.rows.add_action(
        IndexedAction(
            number=context.position,
            action_id=question.action_id,
            run_id=run.run_id,
            status=ActionState.PENDING.name if is_open else UNANSWERED_STATUS,
            agent=run.agent,
            requester=run.requester,
            created_by=run.created_by,
            call_id=question.call_id,
            tool=question.tool_name,
            capability=question.capability,
            kind=question.kind,
            payload_hash=question.payload_hash,
            risk=_encode(question.risk).decode(),
            asked_at=clamp_integer(question.asked_at),
            expires_at=clamp_integer(question.expires_at),
            asked_seq=context.event.seq,
        )
    )
    run.open_questions += is_open


def _apply_granted(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "granted")


def _apply_rejected(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "rejected")


def _apply_expired(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "expired")


def _apply_decision(context: _EventContext, fact: Any, transition: str) -> None:
    action = _transition_action(context, fact.action_id, transition)
    action.decided_at, action.decided_by = clamp_integer(context.event.at), fact.answer.by


def _apply_action_voided(context: _EventContext, fact: facts.ApprovalVoided) -> None:
    _transition_action(context, fact.action_id, "voided")


def _apply_invocation_started(context: _EventContext, fact: facts.InvocationStarted) -> None:
    if fact.action_id:
        _transition_action(context, fact.action_id, "tool.invocation.started")


def _transition_action(context: _EventContext, action_id: str, transition: str) -> IndexedAction:
    action = context.rows.get_action(context.run.run_id, action_id)
    if action is None:
        raise IllegalTransitionError(f"{action_id} was never asked")
    state = next_state(ACTION_TRANSITIONS, action.state, transition)
    if action.status == ActionState.PENDING.name:
        context.run.open_questions -= 1
    action.state, action.status = state, state.name
    return action


_EventHandler = Callable[[_EventContext, Any], None]

#: Every other fact changes no row beyond its last event.
_HANDLERS = cast(
    Mapping[type, _EventHandler],
    {
        facts.RunStarted: _apply_run_started,
        facts.UserMessageReceived: _apply_user_said,
        facts.RunPaused: _apply_run_paused,
        facts.RunResumed: _apply_run_resumed,
        facts.RunCompleted: _apply_run_ended,
        facts.RunDegraded: _apply_run_ended,
        facts.RunFailed: _apply_run_ended,
        facts.RunCancelled: _apply_run_ended,
        facts.ApprovalRequested: _apply_question_asked,
        facts.InputRequested: _apply_question_asked,
        facts.ConsentRequested: _apply_question_asked,
        facts.ApprovalGranted: _apply_granted,
        facts.InputProvided: _apply_granted,
        facts.ConsentGranted: _apply_granted,
        facts.ApprovalRejected: _apply_rejected,
        facts.InputRefused: _apply_rejected,
        facts.ConsentRefused: _apply_rejected,
        facts.ApprovalExpired: _apply_expired,
        facts.InputExpired: _apply_expired,
        facts.ConsentExpired: _apply_expired,
        facts.ApprovalVoided: _apply_action_voided,
        facts.InvocationStarted: _apply_invocation_started,
    },
)
